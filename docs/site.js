// Search in pages that are opened from the disk, where browsers start no workers: the script of the worker runs in a hidden frame.
// Messages are copied and arrive later, as they do at workers.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.onmessage?.({ data: copy }));
      };
      const script = inside.document.createElement("script");
      this.loaded = new Promise((loaded) => (script.onload = () => loaded(inside)));
      script.onerror = (event) => this.onerror?.(event);
      script.src = address;
      inside.document.body.append(script);
    }
    postMessage(data) {
      this.loaded.then((inside) => {
        const copy = inside.structuredClone(data);
        inside.dispatchEvent(new inside.MessageEvent("message", { data: copy }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// Tables that are wider than the page scroll with the keyboard, too.
addEventListener("load", () => {
  for (const frame of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (frame.scrollWidth > frame.clientWidth) {
      frame.tabIndex = 0;
      frame.setAttribute("role", "region");
      frame.setAttribute("aria-label", "table");
    }
  }
});
