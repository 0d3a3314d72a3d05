// The page: which part is shown, the stream of a running build, and the few controls that need more than a link.
// All HTML comes from this server, which has escaped every text in it; the policy of the page allows no script but this one.

const TITLES = {
  cache: "Cache", build: "Build", facts: "Store", documents: "Documents", packing: "Packing",
  tokens: "Tokens", files: "Files", quarantine: "Quarantine",
};
const PANEL = ["status", "figures", "curves", "workers", "problems"];
const kind = document.body.dataset.kind;
const at = (id) => document.getElementById(id);

let route = null;
let stream = null;
let version = null;
let announced = "";

function routeOf(hash) {
  const [part, query] = hash.replace(/^#/, "").split("?");
  const found = new URLSearchParams(query || "");
  if (kind === "cache" && !found.get("store")) return { part: "cache", query: found };
  return { part: part in TITLES ? part : kind === "cache" ? "cache" : "build", query: found };
}

function hashOf(part, query) {
  const text = query.toString();
  return `#${part}${text ? `?${text}` : ""}`;
}

// Parts of the page.

async function fetchPart(part, query, signal) {
  const answer = await fetch(`part/${part}?${query}`, { signal });
  return answer.text();
}

// The same control in what has taken the place of what it was in, so that the keyboard goes on from there.
function focusAgain(target, focused) {
  const isSame = (each) => each.name === focused.name && each.textContent === focused.textContent;
  const same = [...target.querySelectorAll(focused.tagName)].find(isSame);
  (same || at("main")).focus({ preventScroll: true });
}

async function showPart() {
  const shown = route;
  const target = at("part");
  const focused = target.contains(document.activeElement) ? document.activeElement : null;
  target.setAttribute("aria-busy", "true");
  const soon = setTimeout(() => { if (shown === route) target.innerHTML = "<p class='quiet'>Working ...</p>"; }, 300);
  try {
    const html = await fetchPart(shown.part, shown.query);
    if (shown === route) {
      target.innerHTML = html;
      const marked = target.querySelector(".marked");
      if (marked) marked.scrollIntoView({ block: "center" });
    }
  } catch {
    if (shown === route) target.innerHTML = "<p class='error'>The server does not answer.</p>";
  } finally {
    clearTimeout(soon);
    if (shown === route) {
      target.removeAttribute("aria-busy");
      if (focused && document.activeElement === document.body) focusAgain(target, focused);
    }
  }
}

function show() {
  const before = route;
  route = routeOf(location.hash);
  const store = route.query.get("store") || "";
  for (const link of at("parts").querySelectorAll("a")) {
    const part = link.dataset.part;
    const query = new URLSearchParams(part === "cache" || !store ? "" : { store });
    link.href = hashOf(part, query);
    link.hidden = part === "cache" ? kind !== "cache" : kind === "cache" && !store;
    if (part === route.part) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const isBuild = route.part === "build";
  at("title").textContent = TITLES[route.part];
  document.title = `${TITLES[route.part]} · tokenmill`;
  at("build").hidden = !isBuild;
  at("part").hidden = isBuild;
  if (route.part === "cache") closeStream();
  else openStream(store, before && before.query.get("store"));
  if (!isBuild) {
    if (!before || before.part !== route.part) at("part").replaceChildren();
    showPart();
  }
  if (before && before.part !== route.part) at("main").focus({ preventScroll: true });
}

// The stream of a build.

function closeStream() {
  if (stream) stream.close();
  stream = null;
  version = null;
  for (const id of ["name", "connection", ...PANEL]) at(id).replaceChildren();
}

function openStream(store, before) {
  if (stream && (store || "") === (before || "")) return;
  closeStream();
  const address = `live?${new URLSearchParams(store ? { store } : {})}`;
  const opened = new EventSource(address);
  stream = opened;
  stream.onopen = () => { at("connection").textContent = ""; };
  stream.onerror = () => {
    if (opened !== stream) return;
    if (opened.readyState === EventSource.CLOSED) refused(opened, address);
    else at("connection").textContent = "The server does not answer. What is shown may be old; trying again ...";
  };
  stream.onmessage = (message) => update(JSON.parse(message.data));
}

// The server has answered, but not with a stream: it says why, as for a store that was removed.
async function refused(opened, address) {
  const answer = await fetch(address).then((each) => each.text(), () => "The server does not answer.");
  if (opened !== stream) return;
  const text = document.createElement("p");
  text.className = "error";
  text.textContent = answer;
  at("status").replaceChildren(text);
}

function update(changed) {
  for (const [name, html] of Object.entries(changed)) {
    if (name === "name") at("name").textContent = html;
    else if (name === "version") published(html);
    else at(name).innerHTML = html;
  }
  if ("status" in changed) announce();
}

function published(now) {
  const isNew = version !== null && version !== now;
  version = now;
  if (isNew && route.part !== "build") showPart();
}

// Screen readers hear of a build when its state changes, and every tenth of the way.
function announce() {
  const state = at("status").querySelector(".state");
  const whole = at("status").querySelector(".whole");
  if (!state) return;
  const share = Math.floor(10 * Number(whole ? whole.dataset.share || 0 : 0)) * 10;
  const text = state.textContent === "running" ? `${share}% done` : state.textContent;
  if (text !== announced) {
    announced = text;
    at("news").textContent = `Build: ${text}`;
  }
}

// Forms, the slider of packing, and texts of quarantined rows.

addEventListener("submit", (event) => {
  const form = event.target;
  event.preventDefault();
  if (!form.dataset.part) return;
  const query = new URLSearchParams(route.query.get("store") ? { store: route.query.get("store") } : {});
  for (const [name, value] of new FormData(form)) if (value !== "" && name !== "power") query.set(name, value);
  const hash = hashOf(form.dataset.part, query);
  if (hash === location.hash) show();
  else location.hash = hash;
});

let packing = { running: false, next: null };

async function pack(seqLen, quick) {
  if (packing.running) { packing.next = [seqLen, quick]; return; }
  packing.running = true;
  try {
    const query = new URLSearchParams({ seq_len: seqLen, only: 1 });
    if (route.query.get("store")) query.set("store", route.query.get("store"));
    if (quick) query.set("quick", 1);
    const html = await fetchPart("packing", query);
    const target = at("packing-result");
    if (target) target.innerHTML = html;
  } finally {
    packing.running = false;
    const next = packing.next;
    packing.next = null;
    if (next) pack(...next);
  }
}

const lengthOf = (power) => {
  const length = 2 ** Number(power);
  return Number.isInteger(Number(power)) ? length : Math.round(length / 8) * 8;
};

function moved(event, quick) {
  const form = event.target.form;
  if (event.target.name === "power") form.elements.seq_len.value = lengthOf(event.target.value);
  else if (event.target.name === "seq_len" && event.target.value > 0) {
    form.elements.power.value = Math.log2(Number(event.target.value));
  } else return;
  if (form.elements.seq_len.checkValidity()) pack(form.elements.seq_len.value, quick);
  else if (!quick) form.elements.seq_len.reportValidity();
}

const isPacking = (event) => event.target.form && event.target.form.dataset.part === "packing";
addEventListener("input", (event) => { if (isPacking(event)) moved(event, true); });
addEventListener("change", (event) => { if (isPacking(event)) moved(event, false); });

// A button says what it does, and screen readers hear of what.
function call(button, word) {
  button.setAttribute("aria-label", button.getAttribute("aria-label").replace(button.textContent, word));
  button.textContent = word;
}

addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-row]");
  if (!button) return;
  const place = button.parentElement;
  const shown = place.querySelector(".row-text");
  if (shown) {
    shown.remove();
    call(button, "show");
    return;
  }
  const query = new URLSearchParams({ entry: button.dataset.row });
  if (route.query.get("store")) query.set("store", route.query.get("store"));
  const text = document.createElement("div");
  text.className = "row-text";
  text.innerHTML = await fetchPart("row", query);
  place.append(text);
  call(button, "hide");
});

addEventListener("hashchange", show);
show();
