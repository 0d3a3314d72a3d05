"""A small GPT in plain torch, trained from a token store. One file, meant to be read and changed.

    python examples/train_gpt.py                             # Python's own source files, offline, a minute on two cores
    python examples/train_gpt.py 'data/*.jsonl' --tokenizer path/to/tokenizer.json
    python examples/train_gpt.py --pretokenized corpus/ --layers 12 --width 768 --heads 12 --seq-len 1024 --batch-size 512
    torchrun --nproc_per_node=2 examples/train_gpt.py --checkpoint run/            # the same batches, the same losses
    python examples/train_gpt.py --checkpoint run/ --resume                        # after a kill: continues at the next row
    python examples/train_gpt.py --config run.yaml --epochs 3                      # flags from YAML or JSON; those given here win
    python examples/train_gpt.py --compare results/first.csv results/second.csv    # two runs in a table

--batch-size is the rows of one step over all processes. Losses are summed and divided by the targets of the whole batch, so
the curve does not depend on the number of processes or of --accumulate parts, up to the order of additions.
There is no dropout: a checkpoint is the model, the optimizer and the loader's state, and on a CPU the resumed losses equal those
of an uninterrupted run to the last bit. (GPU kernels add in varying order; the data are exact there too.)
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import sysconfig
import time
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import yaml
from torch import Tensor, nn
from torch.nn import functional as F

import tokenmill as tm
from tokenmill.demo_data import demo_tokenizer

# What a checkpoint and its run must agree on.
SHAPE = ("layers", "width", "heads", "seq_len", "strategy", "batch_size", "optimizer", "num_workers")


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a norm and with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, turns), rotated(k, turns)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """Ids to logits. Rotary positions; the embedding is the output layer too."""

    def __init__(self, vocab: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        size = width // heads
        self.register_buffer("speeds", 10_000.0 ** (-torch.arange(0, size, 2) / size), persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:  # what blocks add to the stream starts smaller the more of them there are
                added = name.endswith(("mix.weight", "down.weight"))
                nn.init.normal_(weight, std=width**-0.5 / (math.sqrt(2 * layers) if added else 1))

    def forward(self, ids: Tensor, positions: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """With `positions` and `documents`, each document of a row is read by itself; without them a row is one text."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        angles = positions[:, None, :, None] * self.speeds
        mask = None
        if documents is not None:  # padding is a document of its own, -1, which attends to itself: no softmax is empty
            mask = (documents[:, None, :, None] == documents[:, None, None, :]).tril()
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, (angles.cos(), angles.sin()), mask)
        return F.linear(self.norm(x), self.embedding.weight)


def rotated(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs of numbers rotated by an angle that grows with the position."""
    cos, sin = turns
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).type_as(x)


def summed_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The loss in nats, summed over the targets. Labels are already shifted: each belongs to the logits at its position."""
    logits = model(batch["input_ids"], batch.get("position_ids"), batch.get("document_ids"))
    return F.cross_entropy(logits.float().flatten(0, 1), batch["labels"].flatten(), reduction="sum", ignore_index=-100)


def make_optimizer(gpt: GPT, args: argparse.Namespace, device: torch.device) -> torch.optim.Optimizer:
    """AdamW without decay of the norms. In 8 bits its two averages take a quarter of the memory; that needs a GPU."""
    wide = {"params": [p for p in gpt.parameters() if p.ndim > 1], "weight_decay": 0.1}
    flat = {"params": [p for p in gpt.parameters() if p.ndim < 2], "weight_decay": 0.0}
    if args.optimizer == "adamw":
        return torch.optim.AdamW([wide, flat], lr=args.lr, betas=(0.9, 0.95), fused=device.type == "cuda")
    if device.type != "cuda":
        raise SystemExit("--optimizer adamw8bit needs a CUDA device: leave it out here")
    try:
        import bitsandbytes
    except ImportError as error:
        raise SystemExit(f"--optimizer adamw8bit needs bitsandbytes ({error}): pip install bitsandbytes") from None
    return bitsandbytes.optim.AdamW8bit([wide, flat], lr=args.lr, betas=(0.9, 0.95))


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    warmup = max(1, args.steps // 20)
    if step <= warmup:
        return args.lr * step / warmup
    return args.lr * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup)))


def join_processes(args: argparse.Namespace) -> tuple[int, int, torch.device]:
    """Rank, number of processes and device: from torchrun, or a single process."""
    kind = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0))) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    if "RANK" not in os.environ:
        return 0, 1, device
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return dist.get_rank(), dist.get_world_size(), device


def over_processes(value: Tensor) -> Tensor:
    """The sum over all processes."""
    if dist.is_initialized():
        dist.all_reduce(value)
    return value


def packed(args: argparse.Namespace) -> tm.View:
    """The rows of the corpus: of the given store, or of one that is built from the text once and stored in the cache."""
    if args.strategy == "concat":  # one long text, cut every seq_len tokens: needs no positions and documents
        looks: dict[str, Any] = {"labels": "shifted", "fields": ("input_ids", "labels")}
    else:
        looks = {"labels": "shifted", "strategy": args.strategy, "mask_labels": ("padding", "first")}
    if args.pretokenized:
        return tm.pack(args.pretokenized, args.seq_len, **looks)
    texts = tuple(args.texts) or (str(Path(sysconfig.get_path("stdlib")) / "*.py"),)
    return tm.pack(tm.build(texts, args.tokenizer or demo_tokenizer()), args.seq_len, **looks)


def split(view: tm.View, share: float | None) -> dict[str, tm.View]:
    """The documents to train on, and those held out: the split validation if files are named after it, which `view` leaves out,
    or a share. The split of a document does not change when the corpus grows."""
    if share is None and "validation" in view.store.splits and len(view.store.splits) > 1:
        return {"train": view, "eval": view.split(by="name")["validation"]}
    share = 0.05 if share is None else share
    parts = view.split(train=1 - share, eval=share) if share else {"train": view}
    if not all(len(part) for part in parts.values()):
        few = f"--eval-share {share} of {len(view.store):,} documents leaves one side empty"
        raise SystemExit(f"{few}: give another share, more documents, or 0 to hold out none")
    return parts


def in_workers(loader: tm.Loader, workers: int) -> Any:
    """The same batches, made in worker processes, with a `state_dict` that counts those that were returned."""
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        raise SystemExit("--num-workers needs torchdata: pip install torchdata, or leave it out") from None
    return StatefulDataLoader(loader.dataset(), batch_size=None, num_workers=workers)


def unigram_entropy(view: tm.View) -> float:
    """The loss in nats of a model that knows only token frequencies, estimated from up to a thousand rows."""
    labels = view.rows(np.unique(np.linspace(0, len(view) - 1, 1000).astype(int)))["labels"]
    counts = np.bincount(labels[labels >= 0])
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def perplexity(gpt: GPT, loader: tm.Loader, batches: int, autocast: Any) -> float:
    """The loss over the first batches of the held-out part: the same rows each time, divided among the processes."""
    sums = torch.zeros(2, dtype=torch.float64, device=gpt.embedding.weight.device)
    with torch.no_grad(), autocast:
        for number in range(min(batches, len(loader))):
            batch = loader.batch(number)
            if len(batch["labels"]):  # the last batch may have no row for this process
                sums += torch.stack((summed_loss(gpt, batch).double(), (batch["labels"] != -100).sum()))
    loss, targets = over_processes(sums).tolist()
    return math.exp(loss / max(targets, 1))


@torch.no_grad()
def write_samples(gpt: GPT, view: tm.View, args: argparse.Namespace) -> None:
    """Continue the first tokens of a few rows, sampling from the forty likeliest tokens."""
    tokenizer, device = tm.load_tokenizer(view.store.tokenizer.path), gpt.embedding.weight.device
    generator = torch.Generator(device).manual_seed(args.seed)
    for row in range(min(args.samples, len(view))):
        ids = torch.as_tensor(view[row]["input_ids"][:16], device=device)[None]
        for _ in range(64):
            logits, candidates = gpt(ids[:, -args.seq_len :])[:, -1].topk(min(40, gpt.embedding.num_embeddings))
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            ids = torch.cat((ids, candidates.gather(-1, drawn)), 1)
        text = ids[0].tolist()
        print(f"\n--- {tokenizer.decode(text[:16])!r} goes on:\n{tokenizer.decode(text, start=16)}")


def save(folder: Path, state: dict[str, Any]) -> None:
    """Save atomically, by a synced temporary file and a rename: a crash leaves the previous checkpoint. Keeps the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "unfinished"
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / f"step-{state['step']:08}.pt")
    for old in sorted(folder.glob("step-*.pt"))[:-2]:
        old.unlink()


def latest(args: argparse.Namespace, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint of --checkpoint, if there is one and --resume is given."""
    found = sorted(Path(args.checkpoint).glob("step-*.pt")) if args.checkpoint else []
    if not args.resume:
        if found:
            raise SystemExit(f"{found[-1]} is there already: add --resume, or name another folder for --checkpoint")
        return None
    if not found:
        return None
    state = torch.load(found[-1], map_location=device, weights_only=True)
    wrong = [f"--{name.replace('_', '-')} {was}" for name, was in state["shape"].items() if getattr(args, name) != was]
    if wrong:
        raise SystemExit(f"{found[-1]} was made with {', '.join(wrong)}: resume with the same")
    return state


def train(args: argparse.Namespace) -> None:
    rank, world, device = join_processes(args)
    if args.batch_size % (world * args.accumulate):
        each = f"{world} processes x --accumulate {args.accumulate}"
        raise SystemExit(f"--batch-size {args.batch_size} must be a multiple of {each}")
    say = print if rank == 0 else (lambda *_, **__: None)
    view = packed(args)
    parts = split(view, args.eval_share)
    on_device = None if args.num_workers else device  # workers make batches on the CPU
    size, epochs = args.batch_size, args.epochs or "endless"
    loader = tm.load(parts["train"], global_batch_size=size, epochs=epochs, seed=args.seed, device=on_device)
    if args.epochs:
        args.steps = len(loader)
    data = in_workers(loader, args.num_workers) if args.num_workers else loader
    held_out = None
    if "eval" in parts:
        held_out = tm.load(parts["eval"], global_batch_size=size, shuffle=False, drop_last=False, device=device)

    torch.manual_seed(args.seed)
    gpt = GPT(view.store.tokenizer.vocab_size, args.layers, args.width, args.heads).to(device)
    optimizer = make_optimizer(gpt, args, device)
    precision = args.precision or "fp32"
    if device.type == "cuda" and not args.precision:  # older ones have no bfloat16; float16 needs a scaled loss
        precision = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp16"
    half = torch.float16 if precision == "fp16" else torch.bfloat16
    autocast = torch.autocast(device.type, dtype=half, enabled=precision != "fp32")
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    begin = 0
    if state := latest(args, device):
        gpt.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        data.load_state_dict(state["data"])  # refuses other data, or another order
        begin = state["step"]
        say(f"resumed after step {begin}")
    parallel = nn.parallel.DistributedDataParallel(gpt) if world > 1 else None
    model = parallel or gpt
    if args.compile:
        model = torch.compile(model)

    log = None
    if rank == 0:
        Path(args.results).mkdir(parents=True, exist_ok=True)
        path = Path(args.results) / f"train_gpt-{datetime.now():%Y%m%d-%H%M%S-%f}.csv"
        log = path.open("x", newline="", encoding="utf-8", buffering=1)  # line-buffered: a kill loses nothing
        writer = csv.writer(log)
        writer.writerow(("step", "loss", "lr", "tokens_per_second", "eval_perplexity"))
        size = sum(p.numel() for p in gpt.parameters())
        told = f"{len(parts['train']):,} rows, {args.steps:,} steps, {len(parts.get('eval', ())):,} rows held out"
        say(f"{size:,} parameters on {world} x {device.type} ({precision}); {told}; log: {path}")
        say(f"knowing only how frequent each token is costs {unigram_entropy(parts['train']):.3f} nats")

    before = time.perf_counter()
    for step, batch in zip(range(begin + 1, args.steps + 1), data, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        targets = over_processes((batch["labels"] != -100).sum()).clamp(min=1)
        loss = torch.zeros((), device=device)
        micro = args.batch_size // (world * args.accumulate)
        for first in range(0, micro * args.accumulate, micro):
            piece = {name: value[first : first + micro] for name, value in batch.items()}
            last = first + micro == micro * args.accumulate  # gradients are reduced once per step
            with nullcontext() if parallel is None or last else parallel.no_sync():
                with autocast:
                    summed = summed_loss(model, piece)
                scaler.scale(summed * world / targets).backward()  # DDP averages over processes; this needs the sum
            loss += summed.detach()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loss = (over_processes(loss) / targets).item()

        now = time.perf_counter()
        speed, before = args.batch_size * args.seq_len / (now - before), now
        finished = step == args.steps
        score = None
        if held_out is not None and (finished or step % args.eval_every == 0):
            score = perplexity(gpt, held_out, args.eval_batches, autocast)
        if log:
            writer.writerow((step, loss, learning_rate(step, args), round(speed), score))
        if finished or score or step % 10 == 0:
            evaluated = f", held out: perplexity {score:.2f}" if score else ""
            say(f"step {step}: loss {loss:.4f}, {speed:,.0f} tokens/s{evaluated}", flush=True)
        if args.checkpoint and rank == 0 and (finished or step % args.save_every == 0):
            kept = {"model": gpt, "optimizer": optimizer, "scaler": scaler, "data": data}
            shape = {name: getattr(args, name) for name in SHAPE}
            save(Path(args.checkpoint), {"step": step, "shape": shape} | {k: v.state_dict() for k, v in kept.items()})
        before += time.perf_counter() - now  # evaluating and saving do not count

    if log:
        log.close()
        if args.samples:
            write_samples(gpt, parts.get("eval", view), args)
    if dist.is_initialized():
        dist.destroy_process_group()


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style, allow_abbrev=False)
    option = parser.add_argument
    option("texts", nargs="*", help="raw text: files, globs, folders (Python's own source files)")
    option("--tokenizer", help="for raw text: as for tm.load_tokenizer (the demo tokenizer)")
    option("--config", metavar="FILE", help="flags from YAML or JSON, such as `seq_len: 512`; flags given here win")
    option("--compare", metavar="CSV", nargs=2, help="show the logs of two runs in a table, and train nothing")
    option("--pretokenized", metavar="PATH", help="a token store, instead of text")
    option("--strategy", choices=("concat", "best_fit", "pad"), default="concat", help="how rows are packed (concat)")
    option("--seq-len", type=positive, default=128, help="tokens in a row (128)")
    option("--batch-size", type=positive, default=8, help="rows of a step, over all processes (8)")
    option(
        "--accumulate",
        type=positive,
        default=1,
        help="split the rows of a process into this many parts, to save memory (1)",
    )
    option("--steps", type=positive, help="steps of the whole run, for the learning rate schedule (600)")
    option("--epochs", type=positive, help="instead of --steps: how often each row is read")
    option(
        "--num-workers", type=int, default=0, help="processes that make batches; 0 for a thread, which is enough (0)"
    )
    option("--optimizer", choices=("adamw", "adamw8bit"), default="adamw", help="8 bits: GPU and bitsandbytes (adamw)")
    option("--layers", type=positive, default=2)
    option("--width", type=positive, default=128)
    option("--heads", type=positive, default=4)
    option("--lr", type=float, default=5e-3, help="the highest learning rate (0.005)")
    option("--seed", type=int, default=0, help="for initial weights, row order and samples (0)")
    option(
        "--eval-share", type=float, help="share to hold out; 0 for none (the split validation of the files, or 0.05)"
    )
    option("--eval-every", type=positive, default=100, help="steps between evaluations (100)")
    option("--eval-batches", type=positive, default=8, help="batches of each evaluation (8)")
    option("--checkpoint", metavar="DIR", help="directory for checkpoints (none are saved)")
    option("--save-every", type=positive, default=100, help="steps between checkpoints (100)")
    option("--resume", action="store_true", help="continue after the last checkpoint, if there is one")
    option("--results", metavar="DIR", default="results", help="directory for the log (results)")
    option("--samples", type=int, default=2, help="texts to write at the end (2)")
    option("--device", choices=("cpu", "cuda"), help="(cuda if available)")
    option("--precision", choices=("fp32", "bf16", "fp16"), help="of matrix products (half precision on GPUs)")
    option("--compile", action="store_true", help="torch.compile: a minute at first, then faster")
    args = parser.parse_args(given)
    if args.config:
        args = parser.parse_args([*flags_of(args.config), *(sys.argv[1:] if given is None else given)])
    if args.steps and args.epochs:
        parser.error("--steps and --epochs: give one of them")
    args.steps = args.steps or 600
    if args.pretokenized and (args.texts or args.tokenizer):
        parser.error("--pretokenized is a store, which has its texts and tokenizer: leave those out")
    if args.width % (2 * args.heads):
        parser.error(f"--width {args.width} must be a multiple of twice --heads {args.heads}")
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint DIR, the folder of the run to go on with")
    return args


def flags_of(path: str) -> list[str]:
    """A file of YAML or JSON as flags: `seq_len: 512` is --seq-len=512, `compile: true` is --compile."""
    try:
        values = (json.loads if path.endswith(".json") else yaml.safe_load)(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SystemExit(f"--config {path}: {error}") from None
    if not isinstance(values, dict):
        raise SystemExit(f"--config {path}: write flags and their values, such as seq_len: 512")
    flags = []
    for name, value in values.items():
        flag = f"--{name}".replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not False and value is not None:
            flags.append(f"{flag}={value}")
    return flags


def compared(*paths: str) -> str:
    """The logs of two runs side by side: the mean loss of each tenth of their common steps, perplexities, and speed."""
    runs = []
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if any("eval_perplexity" not in row for row in rows):
            raise SystemExit(f"--compare: {path} is not a log of this program")
        runs.append({int(row["step"]): row for row in rows})
    steps = sorted(runs[0].keys() & runs[1].keys())
    if not steps:
        raise SystemExit(f"--compare: {paths[0]} and {paths[1]} have no step in common")

    def means(name: str, steps: list[int]) -> tuple[float, ...]:
        return tuple(sum(float(run[step][name]) for step in steps) / len(steps) for run in runs)

    lines = [f"{'':24}{Path(paths[0]).name[-30:]:>32}{Path(paths[1]).name[-30:]:>32}  difference"]
    tenth = math.ceil(len(steps) / 10)
    scored = [step for step in steps if all(run[step]["eval_perplexity"] for run in runs)]
    for what, name, of, digits in (
        *(("loss", "loss", steps[at : at + tenth], 4) for at in range(0, len(steps), tenth)),
        *(("perplexity", "eval_perplexity", [step], 2) for step in scored),
        ("tokens per second", "tokens_per_second", steps, 0),
    ):
        where = "" if of is steps else f", {of[0]:,}" + (f" to {of[-1]:,}" if of[1:] else "")
        first, second = means(name, of)
        lines.append(f"{what + where:24}{first:32,.{digits}f}{second:32,.{digits}f}{second - first:+12,.{digits}f}")
    return "\n".join(lines)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


def main(given: list[str] | None = None) -> None:
    try:
        args = arguments(given)
        print(compared(*args.compare)) if args.compare else train(args)
    except (tm.errors.TokenmillError, FileNotFoundError) as error:  # a store that is not there, say
        raise SystemExit(f"train_gpt.py: {error}") from None


if __name__ == "__main__":
    main()
