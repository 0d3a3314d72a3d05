"""The fingerprint of a tokenizer depends on what decides ids, and on nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
import tiktoken
import tokenizers
import transformers
from tokenizer_checks import END, GPT2, REST, WORDS_ONLY

import tokenmill as tm


def test_one_fingerprint_however_it_was_reached(tokenizer_path, tmp_path, folder, body, reference, encoding, rank_file):
    """Names, paths, dates, the order and the form of a file decide no id."""
    expected = tm.load_tokenizer(tokenizer_path).fingerprint
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, eos_token=END)
    fast.save_pretrained(tmp_path / "saved")
    renamed = transformers.PreTrainedTokenizerFast(tokenizer_object=reference, name_or_path="some/where")
    reordered = json.dumps({key: body[key] for key in reversed(body)}, indent=3, sort_keys=True, ensure_ascii=True)
    shuffled = dict(random.Random(1).sample(sorted(body["model"]["vocab"].items()), len(body["model"]["vocab"])))
    old_merges = [f"{left} {right}" for left, right in body["model"]["merges"]]  # as older tokenizers wrote them
    old = tmp_path / "old.json"
    old.write_text(reordered)
    os.utime(old, (1, 1))
    for spec in (
        reference,
        tokenizers.Tokenizer.from_str(reference.to_str(pretty=True)),
        fast,
        renamed,
        tmp_path / "saved",
        old,
        folder({"tokenizer.json": {**body, "model": {**body["model"], "vocab": shuffled}}}),
        folder({"tokenizer.json": {**body, "model": {**body["model"], "merges": old_merges}}}),
        folder({"tokenizer.json": body, "tokenizer_config.json": {"eos_token": END, "model_max_length": 7}}),
        tm.load_tokenizer(tokenizer_path),
        encoding,  # the ranks of this tokenizer.json, with its pattern
        folder({"a.tiktoken": rank_file, "tiktoken.json": {**REST, "name": "another"}}),
        folder({"tokenizer.model": b"".join(sorted(rank_file.splitlines(True))), "tiktoken.json": REST}),
    ):
        assert tm.load_tokenizer(spec).fingerprint == expected, spec


def test_one_fingerprint_of_a_slow_tokenizer(tmp_path):
    held = transformers.ByT5Tokenizer()
    held.save_pretrained(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "copied")
    read_back = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "saved"))
    specs = (held, tmp_path / "saved", tmp_path / "copied", read_back, transformers.ByT5Tokenizer())
    assert len({tm.load_tokenizer(spec).fingerprint for spec in specs}) == 1
    others = (transformers.ByT5Tokenizer(extra_ids=7), transformers.CanineTokenizer())
    assert len({tm.load_tokenizer(spec).fingerprint for spec in (held, *others)}) == 3


def _flag(name, value):
    def change(body):
        body["added_tokens"][0][name] = value

    return change


def _swap_merges(body):
    merges = body["model"]["merges"]
    merges[7], merges[8] = merges[8], merges[7]


def _add(body):
    body["added_tokens"].append({**body["added_tokens"][0], "id": 4096, "content": "<|new|>"})


def _lower(body):
    body["normalizer"] = {"type": "Lowercase"}


def _ignore_merges(body):
    body["model"]["ignore_merges"] = True


@pytest.mark.parametrize(
    "change",
    [_swap_merges, _add, _lower, _ignore_merges, _flag("special", False), _flag("lstrip", True), _flag("normalized", True)],
)  # fmt: skip
def test_what_decides_an_id_decides_the_fingerprint(folder, body, tokenizer_path, change):
    changed = json.loads(json.dumps(body))
    change(changed)
    found = tm.load_tokenizer(folder({"tokenizer.json": changed}))
    assert found.fingerprint != tm.load_tokenizer(tokenizer_path).fingerprint


def test_the_policy_for_special_tokens_decides_the_fingerprint(tokenizer_path):
    """Except that an error is no other id."""
    prints = {
        policy: tm.load_tokenizer(tokenizer_path, special_tokens=policy).fingerprint
        for policy in ("parse", "text", "error")
    }
    assert prints["parse"] == prints["error"] != prints["text"]


def test_ranks_that_differ_have_other_fingerprints(ranks, encoding):
    swapped = {**ranks, b"th": ranks[b"in"], b"in": ranks[b"th"]}
    assert swapped != ranks
    others = [
        tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=swapped, special_tokens={END: 0}),
        tiktoken.Encoding("demo", pat_str=WORDS_ONLY, mergeable_ranks=ranks, special_tokens={END: 0}),
        tiktoken.Encoding("demo", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|end|>": 0}),
    ]
    assert len({tm.load_tokenizer(one).fingerprint for one in (encoding, *others)}) == 4
