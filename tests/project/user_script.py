"""What a user writes with tokenmill, in 40 lines. `make types` checks it with mypy --strict and pyright; a test runs it."""

# pyright: strict

import numpy as np
import torch

import tokenmill as tm


def main() -> list[float]:
    source = tm.read("data/*.txt", format="text")
    expected = tm.estimate(source, "bytes", sample="1MB")
    store = tm.build("data/*.txt", "bytes", "corpus", workers=0, progress="quiet")
    part = tm.build("data/*.txt", "bytes", "sliced", slice="0/1", workers=0, progress="quiet")
    if part is not None and part.fingerprint != store.fingerprint:
        raise ValueError(f"{part.name} differs")
    try:
        store = tm.open(store.path)
    except tm.errors.StoreError as error:
        print(f"{tm.__version__}: {error}")
    lengths: list[int] = [len(ids) for ids in store]
    first, few = store[0], store[:2]
    text: str = store.text(0) + "".join(store.tokenizer.load().decode(each) for each in few)
    place = store.locate(0)
    tokenizer = tm.load_tokenizer("bytes")
    ids, several = tokenizer.encode(text), tokenizer.encode([text, place.file])
    back: list[str] = tokenizer.decode(several)
    same: str = tokenizer.decode(ids) + tokenizer.decode([72, 105])
    view = tm.pack(store, 16, strategy="best_fit")
    row, rows = view[0], view[0:2]
    width, cells = row["input_ids"].shape[0], int(rows["labels"].sum()) + view.rows([0, 1])["input_ids"].size
    parts = view.split(train=0.5, valid=0.5)
    mixture = tm.mix({"one": (parts["train"], 0.7), "two": (parts["valid"], 0.3)})
    losses: list[float] = []
    for batch in tm.load(view, 2, epochs=1):
        losses.append(torch.ones_like(batch["input_ids"]).float().mean().item())
    state = tm.load(mixture, 2).state_dict()
    loader = tm.load(mixture, 2)
    loader.load_state_dict(state)
    tensor = loader.batch(0)["labels"].to(torch.int32)
    array: np.ndarray = np.asarray(tensor) + first[:1] + width + cells + sum(lengths)
    written = tm.export(store, "exported", format="nanogpt")
    again = tm.import_tokens(written.path, "imported")
    recipe = tm.recipe(
        {"sources": {"web": "data/*.txt"}, "tokenizer": "bytes", "pack": {"seq_len": 16}, "load": {"batch_size": 2}}
    )
    step: int = recipe.loader().step + expected.tokens + again.num_tokens + len(back) + len(same) + array.size
    return [*losses, float(step)]


if __name__ == "__main__":
    print(main())
