"""The text of documents, and what is said to those who ask a store for something it does not have."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tokenizers

import tokenmill as tm
from tokenmill.errors import MissingStoreError, StoreError

TEXTS = ["hello world", "", "två ord  med   luft ", " starts with a space", "<|endoftext|> inside"]


@pytest.fixture(scope="module", params=["shipped", "bytes"])
def store(request, tmp_path_factory, tokenizer_path) -> tm.Store:
    """Documents with a bos and an eos around each."""
    tokenizer = tokenizer_path if request.param == "shipped" else "bytes"
    out = tmp_path_factory.mktemp("store") / "store"
    around = {"bos": 5, "eos": 6}
    return tm.build(iter(TEXTS), tokenizer, out, workers=0, engine="reference", progress="quiet", **around)


def test_text_is_what_the_document_was_made_from(store):
    """Without the ids that a build puts around a document."""
    expected = TEXTS
    assert [store.text(i) for i in range(len(store))] == expected
    assert store.text(-1) == expected[-1]
    assert store.text(np.int64(0)) == expected[0]


def test_the_space_that_a_tokenizer_adds_before_a_text_is_not_part_of_it(tmp_path):
    """Although a bos comes before the document, which usually makes it a space of the text."""
    names = ["<s>", "▁", *sorted(set("hello world") - {" "})]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = tokenizers.pre_tokenizers.Metaspace(), tokenizers.decoders.Metaspace()
    options = {"bos": 0, "eos": "none", "workers": 0, "engine": "reference", "progress": "quiet"}
    store = tm.build(iter(["hello world"]), tokenizer, tmp_path / "store", **options)
    assert (store[0][0], store.text(0)) == (0, "hello world")


def test_no_such_document(store):
    with pytest.raises(IndexError, match="document 17 of a store with 5 documents"):
        store.text(17)
    for wrong in ("a", 1.5, None, (0,)):
        for ask in (store.text, store.__getitem__, store.locate):
            with pytest.raises(TypeError, match=r"documents are numbered: .* is not a whole number or a slice"):
                ask(wrong)
    with pytest.raises(TypeError, match="text takes the number of one document"):
        store.text(slice(2))
    with pytest.raises(TypeError, match="text takes the number of one document"):
        store.text([0])
    with pytest.raises(TypeError, match=r"columns is a list of names: to_arrow\(\['ids'\]\)"):
        store.to_arrow("ids")


def test_no_tokenizer(store, tmp_path):
    """The ids are still there, and the message has the tokenizer's name."""
    copy = shutil.copytree(store.path, tmp_path / "copy")
    shutil.rmtree(copy / "tokenizer")
    opened = tm.open(copy)
    assert opened[0].tolist() == store[0].tolist()
    with pytest.raises(StoreError, match=r"has no tokenizer to decode with: .* is missing; run its build again"):
        opened.text(0)


def test_what_is_no_store(tmp_path):
    (tmp_path / "a.txt").touch()
    for ask in (tm.open, lambda path: tm.pack(path, 8)):
        with pytest.raises(TypeError, match="a store is opened by its path, not by int 17"):
            ask(17)
        with pytest.raises(
            MissingStoreError, match=r"a\.txt: it is a file; tokenmill build \(tm\.build\) makes a store"
        ):
            ask(tmp_path / "a.txt")
