"""Run the blocks for trainers in docs/formats.md, each with the library that it names, and compare what each library makes of
the export with the store: ids, labels, where documents end. Called by `format_conformance.py`.

    python scripts/trainer_blocks.py ENVIRONMENTS STORE [NAME ...]

runs them alone, all or some.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import numpy as np

import tokenmill as tm

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
OWN = ("numpy", "transformers")  # in the environment of this project
# Put before a block: the library without its image support, which needs a matching torchvision.
BEFORE = {"mds": 'import sys, types\nsys.modules["streaming.vision"] = types.ModuleType("streaming.vision")\n'}
SHARES = {"numpy": {"train": 0.999, "val": 0.001}, "litdata": {"train": 0.99, "val": 0.01}}  # as in the commands
# What must be true after a block. `ids` is all tokens of the store end to end, `lengths` those of its documents, `eos` the id
# after each, `train` the tokens of the split of that name, but for the last few.
AFTER = {
    "numpy": """
assert len(train) <= len(data) < len(train) + 16 and np.array_equal(data[: len(train)], train)
assert data[-1] == eos
""",
    "megatron": """
assert train[0]["tokens"].shape == (1024,) and len(train) > 100
indexed = train.datasets[0].dataset if hasattr(train, "datasets") else train.dataset
assert np.array_equal(np.concatenate([indexed[i] for i in range(len(indexed))]), ids)
assert [len(indexed[i]) for i in range(len(indexed))] == lengths.tolist()
masks = dict.fromkeys(masks, True)
config = GPTDatasetConfig(random_seed=1, sequence_length=1024, blend=(["out/megatron/train"], None), split="99,1,0",
                          tokenizer=tokenizer, path_to_cache="out/masked", **masks)
masked, ends = BlendedMegatronDatasetBuilder(GPTDataset, [100, 1, 0], lambda: True, config).build()[0], 0
for row in (masked[i] for i in range(100)):
    tokens, is_end = row["tokens"].numpy(), row["tokens"].numpy() == eos
    assert np.array_equal(row["labels"][:-1], tokens[1:])
    assert np.array_equal(row["loss_mask"] == 0, is_end)
    begins = np.insert(is_end[:-1], 0, True)  # positions, and what can be attended to, start again after each eos
    assert np.array_equal(row["position_ids"] == 0, begins)
    assert np.array_equal(row["attention_mask"][0, -1].logical_not(), np.cumsum(begins) == begins.sum())
    ends += is_end.sum()
print(f"{ends} resets")
assert ends
""",
    "mds": """
rows = np.concatenate([each["tokens"] for each in dataset][:-1])
assert len(row) == 2048 and np.array_equal(rows, ids[: 2048 * (len(dataset) - 1)])
assert np.array_equal(dataset[len(dataset) - 1]["tokens"][: len(ids) % 2048 or 2048], ids[2048 * (len(dataset) - 1) :])
""",
    "litdata": """
blocks = np.concatenate([dataset[i] for i in range(len(dataset))])
assert len(blocks) > len(train) - 2049 and np.array_equal(blocks[: len(train)], train[: len(blocks)])
""",
    "olmo": """
rows = np.concatenate([dataset[i]["input_ids"] for i in range(len(dataset))])
assert len(dataset) > 10 and np.array_equal(rows, ids[: 2048 * len(dataset)])
config.generate_doc_lengths = True
cut = config.build()
cut.prepare()
ends = [np.cumsum(cut[i]["doc_lens"])[:-1] - 1 + 2048 * i for i in range(len(cut))]
true = np.flatnonzero(rows == eos)
assert len(true) and np.array_equal(np.concatenate(ends), true[true % 2048 != 2047])
""",
    "transformers": """
import torch

assert np.array_equal(rows[0]["input_ids"], ids[:1024])
assert np.array_equal(rows[1]["labels"], ids[1024:2048])
batch = {name: rows[:2][name] for name in ("input_ids", "labels")}
out, targets = model.eval()(**batch), torch.from_numpy(ids[:2048]).reshape(2, 1024)[:, 1:]  # the next token, once
expected = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), targets.flatten())
assert abs(out.loss - expected) < 1e-4
""",
}


def blocks() -> dict[str, tuple[str, str]]:
    """The commands and the Python of each library."""
    found = re.findall(
        r'```bash title="(\w+)"\n(.*?)```\s+```python title="(\w+)"\n(.*?)```', PAGE.read_text("utf-8"), re.DOTALL
    )
    assert [first for first, *_ in found] == [second for *_, second, _ in found] == list(AFTER)
    return {name: (commands, code) for name, commands, _, code in found}


def train_tokens(store: tm.Store, shares: dict[str, float]) -> np.ndarray:
    """The tokens of the split `train`, from rows of 16."""
    view = tm.pack(store, 16, split="all", fields=["input_ids"], tail="drop").split(**shares)["train"]
    return view[:]["input_ids"].reshape(-1)


def run_trainer_blocks(
    environments: Path, store: tm.Store, work: Path, only: Collection[str] = AFTER
) -> list[tuple[str, bool | None]]:
    """What came of each library's blocks: None if it has no environment here. No file of the store may name a split."""
    (work / "corpus").symlink_to(store.path.absolute())
    np.save(work / "ids.npy", np.concatenate(list(store)).astype(np.int64))
    np.save(work / "lengths.npy", np.array([len(ids) for ids in store]))
    results: list[tuple[str, bool | None]] = []
    for name, (commands, code) in blocks().items():
        if name not in only:
            continue
        python = Path(sys.executable) if name in OWN else environments / name / "bin" / "python"
        if not python.exists():
            results.append((name, None))
            continue
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        script = work / f"trainer_of_{name}.py"  # not by the name of the library, which it imports
        known = "import numpy as np\nids, lengths = np.load('ids.npy'), np.load('lengths.npy')\n"
        known += f"eos = {store.tokenizer.eos_id}\n"
        if name in SHARES:
            np.save(work / "train.npy", train_tokens(store, SHARES[name]))
            known += "train = np.load('train.npy')\n"
        script.write_text(f"{BEFORE.get(name, '')}{code}\n{known}{AFTER[name]}\n")
        runs = [(["bash", "-ec", commands], {"PATH": path}), ([str(python), str(script)], {"CUDA_VISIBLE_DEVICES": ""})]
        results.append((name, all(_run(command, work, more) for command, more in runs)))
    return results


def _run(command: list[str], work: Path, more: dict[str, str]) -> bool:
    done = subprocess.run(command, cwd=work, env={**os.environ, **more}, capture_output=True, text=True, timeout=600)
    if done.returncode:
        print(f"{' '.join(command)}:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}", flush=True)
    return not done.returncode


if __name__ == "__main__":
    folder, path, *names = sys.argv[1:]
    found = run_trainer_blocks(Path(folder).absolute(), tm.open(path), Path(tempfile.mkdtemp()), names or AFTER)
    for name, agrees in found:
        print(f"{'not run' if agrees is None else 'agrees' if agrees else 'DIFFERS'}  {name}")
    sys.exit(any(agrees is False for _, agrees in found))
