"""What masks, positions and labels are for: a small transformer learns from packed documents what it would from each alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from packing_reference import write_store
from torch.nn import functional
from torch.utils.data import DataLoader

import tokenmill as tm

VOCAB, WIDTH, HEADS, LENGTH = 50, 16, 2, 24


class Transformer(torch.nn.Module):
    """Embeddings of ids and positions, two blocks of attention under a given mask, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.ids, self.positions = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.mixes = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.thinks = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.out = torch.nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, positions, mask):
        """`mask` is (rows, 1, queries, keys); everybody sees itself, so that padding is no division by nothing."""
        state = self.ids(ids) + self.positions(positions)
        mask = mask.bool() | torch.eye(ids.shape[1], dtype=torch.bool)
        for mix, think in zip(self.mixes, self.thinks, strict=True):
            parts = mix(state).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
            state = state + torch.tanh(think(seen.transpose(1, 2).flatten(2)))
        return self.out(state)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Transformer().double().requires_grad_(False)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCAB, n).tolist() for n in (5, 24, 1, 9, 13, 2, 7, 17, 0, 23, 3, 11)]


@pytest.fixture(scope="module")
def store(tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("torch") / "store"
    return tm.open(write_store(folder, [[("a", documents[:7])], [("a", documents[7:])]], vocab_size=VOCAB))


@pytest.fixture(scope="module")
def alone(model, documents):
    """The loss of each document by itself, without packing: next token after next token, summed."""
    total = 0.0
    for document in documents:
        if document:
            ids = torch.tensor([document])
            causal = torch.ones(len(document), len(document)).tril()[None, None]
            logits = model(ids, torch.arange(len(document))[None], causal)
            total += float(functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum"))
    return total


def summed_loss(logits, labels, kind):
    """As trainers do it: "same" is shifted inside, "shifted" is taken as it is; -100 is no loss."""
    if kind == "same":
        logits, labels = logits[:, :-1], labels[:, 1:]
    return float(functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"))


def packed(store, **options):
    options = {
        "strategy": "best_fit",
        "mask_labels": ("padding", "first"),
        "fields": ("input_ids", "labels", "position_ids", "attention_mask_4d", "cu_seqlens"),
        **options,
    }
    view = tm.pack(store, LENGTH, **options)
    rows = view[:]
    assert view.stats.boundaries >= 5
    return {name: torch.as_tensor(values) for name, values in rows.items()}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("labels", ["same", "shifted"])
def test_documents_packed_cost_what_they_cost_alone(model, store, alone, labels, side):
    rows = packed(store, labels=labels, padding_side=side)
    logits = model(rows["input_ids"], rows["position_ids"], rows["attention_mask_4d"])
    assert summed_loss(logits, rows["labels"], labels) == pytest.approx(alone, rel=1e-10)


@pytest.mark.parametrize("labels", ["same", "shifted"])
def test_without_the_mask_the_positions_or_the_labels_they_do_not(model, store, alone, labels):
    """The equality above is not one that holds for anything."""
    rows = packed(store, labels=labels)
    causal = torch.ones_like(rows["attention_mask_4d"]).tril()
    ids, positions, mask = rows["input_ids"], rows["position_ids"], rows["attention_mask_4d"]
    on = torch.arange(LENGTH).expand_as(positions)
    crossing = packed(store, labels=labels, mask_labels=("padding",))["labels"]
    for wrong in (
        summed_loss(model(ids, positions, causal), rows["labels"], labels),
        summed_loss(model(ids, on, mask), rows["labels"], labels),
        summed_loss(model(ids, positions, mask), crossing, labels),
    ):
        assert abs(wrong - alone) > 1e-3 * alone


@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_between_cu_seqlens_are_the_documents(model, store, alone, side):
    """The way attention of variable length has it: the batch end to end, each sequence by itself."""
    rows = packed(store, labels="shifted", padding_side=side)
    ids, positions, labels = (rows[name].flatten() for name in ("input_ids", "position_ids", "labels"))
    total, longest = 0.0, 0
    for start, end in zip(rows["cu_seqlens"][:-1].tolist(), rows["cu_seqlens"][1:].tolist(), strict=True):
        causal = torch.ones(end - start, end - start).tril()[None, None]
        logits = model(ids[None, start:end], positions[None, start:end], causal)
        total += summed_loss(logits, labels[None, start:end], "shifted")
        longest = max(longest, end - start)
    assert total == pytest.approx(alone, rel=1e-10)
    assert int(rows["max_seqlen"]) == longest


def test_block_masks_with_and_without_the_heads_axis_are_one(store):
    rows = packed(store, fields=("document_mask", "attention_mask_4d"))
    assert torch.equal(rows["document_mask"][:, None], rows["attention_mask_4d"])


@pytest.mark.parametrize("strategy", ["concat", "best_fit", "pad", "windows"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_data_loader_takes_a_view_as_it_is(store, strategy, dtype):
    view = tm.pack(
        store, LENGTH, strategy=strategy, fields=("input_ids", "labels", "attention_mask", "document_mask"), dtype=dtype
    )
    batches = list(DataLoader(view, batch_size=3))
    assert len(batches) == -(-len(view) // 3)
    for at, batch in enumerate(batches):
        for name, values in view[3 * at : 3 * at + 3].items():
            assert torch.equal(batch[name], torch.as_tensor(values))
    assert batches[0]["input_ids"].dtype == getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.cat([b["input_ids"] for b in DataLoader(view, 3, shuffle=True, generator=generator)])
    assert sorted(shuffled.tolist()) == sorted(view[:]["input_ids"].tolist())
