"""Names of special tokens in a text: their ids, ordinary text, or the end of the build. And what stands around documents."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizer_checks import quick_rules
from tokenizer_kinds import KINDS, NASTY
from written_tokenizers import Written, bpe, metaspace, template, unigram
from written_tokenizers import word_level as word_level_model

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.documents import text_array
from tokenmill.encoding.encoder import Encoder, LongDocument
from tokenmill.encoding.hf_tokenizers import has_parts
from tokenmill.encoding.tokenizer_json import byte_alphabet
from tokenmill.errors import DocumentError, MismatchError
from tokenmill.events import Event
from tokenmill.store.facts import info

pytestmark = pytest.mark.filterwarnings("ignore:.*is not complete")

END = "<|endoftext|>"
UNKNOWN = "no such text"  # a name of the unknown token
SMALL = 200  # what is "long" here, in bytes
LATE = ["<a>", "<b>", "<c>", "<end of text>", "<d>"]  # added last, to every kind; those with b and d are not special


SPLIT = {"type": "WhitespaceSplit"}


def word_level(texts: list[str]) -> Written:
    """Whole words and nothing else: a special token's name is a word like any other, and in the vocabulary."""
    words = ["[UNK]", "<s>", "</s>", *sorted({word for text in texts for word in text.split()})[:400]]
    model = word_level_model(dict.fromkeys(words), "[UNK]")
    return Written({"model": model, "pre_tokenizer": SPLIT}).with_tokens("[UNK]", "<s>", "</s>")


def merged(texts: list[str]) -> Written:
    """BPE whose merges make its special tokens, and go on from one."""
    del texts
    names = [
        *(chr(code) for code in range(32, 127)),
        "<|",
        "|>",
        "<|x",
        "<|x|>",
        "he",
        "the",
        "<|x|>e",
        "</",
        "s>",
        "</s>",
    ]
    merges = [("<|", "x"), ("<|x", "|>"), ("h", "e"), ("t", "he"), ("<|x|>", "e"), ("<", "/"), ("s", ">"), ("</", "s>")]
    model = bpe({name: i for i, name in enumerate(names)}, [("<", "|"), ("|", ">"), *merges])
    return Written({"model": model}).with_tokens("<|x|>", "</s>")


def prefixed(texts: list[str]) -> Written:
    """BPE that marks what goes on inside a word, whose merges make its special token."""
    del texts
    names = ["<unk>", "<", "s", "e", "##s", "##e", "##>", "<s", "##s>", "<s>", "<e", "se", "##es", "##es>"]
    merges = [("<", "##s"), ("##s", "##>"), ("<s", "##>"), ("<", "##e"), ("s", "##e"), ("##e", "##s"), ("##es", "##>")]
    vocabulary = {name: i for i, name in enumerate(names)}
    model = bpe(vocabulary, merges, unk_token="<unk>", continuing_subword_prefix="##")
    return Written({"model": model, "pre_tokenizer": SPLIT}).with_tokens("<unk>", "<s>")


def raw_spaces(texts: list[str]) -> Written:
    """Unigram that sees the text as it is, spaces and all."""
    del texts
    letters = [(chr(code), -5.0 - code / 100) for code in range(32, 127)]
    model = unigram([("<unk>", 0.0), ("</s>", -0.1), *letters, ("the ", -6.0)], 0)
    return Written({"model": model}).with_tokens("<unk>", "</s>")


def from_file(path: Path, texts: list[str]) -> Written:
    del texts
    return Written.read(path)


ALL_KINDS: dict[str, Callable[[list[str]], Written]] = {
    **{name: partial(from_file, path) for name, path in KINDS.items()},
    "word_level": word_level,
    "merged": merged,
    "prefixed": prefixed,
    "raw_spaces": raw_spaces,
}


@pytest.fixture(scope="module")
def made(real_texts) -> Callable[[str], Written]:
    """A tokenizer of some kind, with added tokens after its vocabulary: special and not, by turns."""

    @cache
    def made(name: str) -> Written:
        found = ALL_KINDS[name]([text[:6000] for text in real_texts[:25]])
        late = [{"content": name, "special": name not in ("<b>", "<d>"), "normalized": False} for name in LATE]
        return found.with_tokens(*late)

    return made


@pytest.fixture(params=ALL_KINDS)
def kind(request, made) -> Written:
    return made(request.param)


def special_names(full: Written) -> set[str]:
    """Those of a tokenizer, but for the unknown token's."""
    special = {token["content"] for token in full.body["added_tokens"] if token["special"]}
    return special - {"[UNK]", "<unk>"}


def ids_of(reference: Written, texts: list[str]) -> list[list[int]]:
    return list(map(reference.encode, texts))


def ignorant(full: Written) -> Callable[[str], list[int]]:
    """What a tokenizer makes of a text that never heard of the special tokens: it has no such names, so no such ids."""
    body = json.loads(full.to_str())
    special, model = special_names(full), body["model"]
    plain = [token for token in body["added_tokens"] if not token["special"]]
    body["added_tokens"] = []
    if isinstance(model["vocab"], dict):
        left = [name for name in sorted(model["vocab"], key=model["vocab"].get) if name not in special]
        model["vocab"] = {name: i for i, name in enumerate(left)}
    else:
        model["vocab"] = [entry for entry in model["vocab"] if entry[0] not in special]
        model["unk_id"] = next(i for i, (name, _) in enumerate(model["vocab"]) if name == "<unk>")
        model["vocab"][model["unk_id"]] = [UNKNOWN, 0.0]
    if "merges" in model:
        known = set(model["vocab"])
        hidden = len(model["continuing_subword_prefix"] or "")
        model["merges"] = [[a, b] for a, b in model["merges"] if {a, b, a + b[hidden:]} <= known]
    made = Written(body).with_tokens(*plain)
    numbers = full.vocabulary | {UNKNOWN: full.vocabulary.get("<unk>")}
    return lambda text: [numbers[name] for name in made.tokens(made.encode(text))]


def some_documents(names: list[str]) -> st.SearchStrategy[list[str]]:
    """Documents in which names stand whole, broken, side by side, and across the border of two documents."""
    halves = [part for name in names for part in (name[: len(name) // 2], name[len(name) // 2 :])]
    pieces = st.sampled_from([*names, *names, *halves, *NASTY, *"  ", "word", "the", "abc", "<b>", "<d>"])
    return st.lists(st.lists(pieces, max_size=12).map("".join), max_size=6)


def build(source: Any, tokenizer: Any, out: Path, **options: Any) -> tuple[tm.Store, dict[str, Any]]:
    """A build, and what it said at the end."""
    events: list[Event] = []
    store = tm.build(
        source, tokenizer, out, **{"workers": 0, "engine": "reference", "progress": events.append} | options
    )
    return store, events[-1]


def counted(store: tm.Store, finished: dict[str, Any]) -> int:
    """How many documents hold special tokens, as the store, its description and the build say."""
    found = {store._manifest.special_documents, info(store.path)["special_documents"], finished.special_documents}
    assert len(found) == 1
    return found.pop()


def shard_files(store: tm.Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((store.path / "shards").iterdir())}


def documents(store: tm.Store) -> list[list[int]]:
    return [ids.tolist() for ids in store]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def prose(seed: int, count: int, names: tuple[str, ...] = (END,), every: int = 7) -> list[str]:
    """Texts of some 60 words; every so many holds a name, at its start, in it, at its end, or twice."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(["some", "words", "of", "a", "text", "é", "中文"], k=60)) for _ in range(count)]
    for i in range(0, count, every):
        name = names[i // every % len(names)]
        texts[i] = (f"{name} {texts[i]}", f"{texts[i]}{name}", f"a{name}b {name}", name)[i // every % 4]
    return texts


@pytest.fixture
def small(monkeypatch):
    """Make documents of some hundred bytes long ones."""
    monkeypatch.setattr("tokenmill.reading.formats.text.LONG_TEXT", SMALL)
    monkeypatch.setattr("tokenmill.building.long_document.WHOLE_BYTES", SMALL)
    monkeypatch.setattr("tokenmill.building.long_document.PART_BYTES", SMALL)
    monkeypatch.setattr("tokenmill.encoding.encoder.cached_rules", quick_rules)


# Their ids: parse.


def words(count: int, special: list[int]) -> Written:
    """A vocabulary of so many words, some of which are special tokens; the last word but one is the unknown one."""
    unknown = f"w{count - 2}"
    model = word_level_model([f"w{i}" for i in range(count)], unknown)
    return Written({"model": model, "pre_tokenizer": SPLIT}).with_tokens(unknown, *(f"w{i}" for i in special))


PLACES = {
    "low": [0, 1],
    "high": [37, 39],
    "middle": [19, 20, 21],
    "all over": [0, 7, 20, 33, 39],
    "one": [25],
    "none": [],
}


@pytest.mark.parametrize("place", PLACES)
def test_documents_with_special_ids_are_found_wherever_those_lie(place):
    """At the start, the end or the middle of the vocabulary; the unknown token counts by name, not for other words."""
    reference, special = words(40, PLACES[place]), set(PLACES[place])
    encoder = tm.load_tokenizer(reference.library, "reference")._encoder(
        bos_id=0, eos_id=39
    )  # around it they do not count

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.lists(st.integers(0, 45), max_size=5), max_size=8))
    def check(numbers):
        texts = [" ".join(f"w{n}" for n in document) for document in numbers]
        found = [i for i, ids in enumerate(ids_of(reference, texts)) if special & set(ids) or 38 in numbers[i]]
        assert list(encoder.encode(text_array(texts)).special) == found

    check()


def test_parse_gives_the_ids_that_tokenizers_gives(kind):
    """Which is the default, and what is counted are the documents with such an id."""
    loaded = tm.load_tokenizer(kind.library, "reference")
    special, unknown = {kind.vocabulary[name] for name in special_names(kind)}, loaded._produced_names
    assert loaded.special_tokens == tm.load_tokenizer(kind.library, "reference", "parse").special_tokens == "parse"
    encoder = loaded._encoder()

    @settings(max_examples=40, deadline=None)
    @given(some_documents(sorted(special_names(kind))))
    def check(texts):
        tokens, expected = encoder.encode(text_array(texts)), ids_of(kind, texts)
        assert [part.tolist() for part in np.split(tokens.ids, tokens.ends)[:-1]] == expected
        named = [any(name in text for name in unknown) for text in texts]
        assert list(tokens.special) == [i for i, ids in enumerate(expected) if special & set(ids) or named[i]]

    check()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Several files, one of them in pieces, with bad rows and blank lines between; 60 documents hold a name."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, seed, count in (("a", 1, 140), ("b", 2, 210), ("c", 3, 70)):
        write_jsonl(folder / f"{name}.jsonl", prose(seed, count))
    with open(folder / "c.jsonl", "a") as out:
        out.write(f'\n{{"text": "{END}"\n{{"no": "{END}"}}\n\n{{"text": null, "other": "{END}"}}\n')
    return folder


WITH_NAME = 20 + 30 + 10


@pytest.mark.parametrize("workers", [0, 2])
def test_documents_with_special_tokens_are_counted(corpus, tokenizer_path, tmp_path, capsys, workers):
    """Exactly, by whoever encodes them; in the store, in what the build says at its end, and for people."""
    out = tmp_path / "out"
    store, finished = build(corpus, tokenizer_path, out, workers=workers, shard_bytes="8KB", engine="gigatoken")
    assert store.num_shards > 5
    assert counted(store, finished) == WITH_NAME
    assert sum(0 in ids[:-1] for ids in store) == WITH_NAME
    assert main(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["special_documents"] == WITH_NAME
    assert main(["info", str(out)]) == 0
    assert f"{WITH_NAME} documents hold special tokens, encoded as their ids" in capsys.readouterr().out


def test_the_build_says_aloud_that_there_were_some(jsonl, tokenizer_path, tmp_path, capsys):
    """Once, and not where there were none."""
    for texts, said in ((["a", f"b {END}"], "1 document with special tokens"), (["a", "b"], "")):
        command = ["build", str(jsonl(texts)), "-t", str(tokenizer_path), "-o", str(tmp_path / f"out{said}")]
        assert main([*command, "--engine", "reference"]) == 0
        err = capsys.readouterr().err
        assert ("special" in err) == bool(said)
        assert said in err


class Stop(Exception):
    """Raised by a test, to end a build midway."""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_count_survives_an_interruption(corpus, tokenizer_path, tmp_path, workers):
    """What was counted before is in the receipts; nothing is counted twice."""
    shards = 0

    def stop(event):
        nonlocal shards
        if event.name == "shard_done":
            shards += 1
            if shards == 3:
                raise Stop

    options: dict[str, Any] = {"workers": workers, "shard_bytes": "8KB"}
    with pytest.raises(Stop):
        build(corpus, tokenizer_path, tmp_path / "out", progress=stop, **options)
    assert 3 <= len(list((tmp_path / "out/shards").glob("*.json"))) < 8
    assert counted(*build(corpus, tokenizer_path, tmp_path / "out", **options)) == WITH_NAME


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_fail_are_not_counted(tmp_path, tokenizer_path, workers):
    """Not even what was encoded of one before it failed; and nothing else is forgotten with it."""
    source = tmp_path / "in"
    write_jsonl(source / "a.jsonl", prose(1, 70))
    write_jsonl(source / "c.jsonl", prose(2, 35))
    body = "".join(json.dumps({"text": text}) + "\n" for text in prose(3, 280) * 90).encode()
    assert len(body) > 8 << 20  # two blocks of it
    (source / "b.jsonl.gz").write_bytes(gzip.compress(body, 1, mtime=0)[:-9])
    store, finished = build(source, tokenizer_path, tmp_path / "out", engine="gigatoken", workers=workers)
    assert (len(store.failed), store.num_shards, len(store)) == (1, 1, 105)
    assert counted(store, finished) == 15


def long_texts(name: str) -> list[str]:
    """Long documents with a name in them, wherever it may fall: between the places where they are cut, and across."""
    line = "word after word and then a line\n"
    return [(line * 30)[: 300 + 7 * i] + name + (line * 30)[i:500] for i in range(40)]


@pytest.mark.parametrize("special_tokens", ["parse", "text"])
def test_long_documents_are_counted_once(tmp_path, made, small, special_tokens):
    """Documents encoded in parts, with names in any place: also one with spaces, at which ordinary text may be cut."""
    full = made("byte_level")
    texts = [*long_texts("<end of text>"), *long_texts("<nothing>"), *long_texts(END)[:9]]
    for i, text in enumerate(texts):
        (tmp_path / f"{i:03}.txt").write_text(text)
    path = str(tmp_path / "*.txt")
    store, finished = build(path, full.library, tmp_path / "out", eos="none", special_tokens=special_tokens)
    expected = ids_of(full, texts) if special_tokens == "parse" else list(map(ignorant(full), texts))
    assert documents(store) == expected
    assert counted(store, finished) == 49


def test_long_documents_that_are_left_out_are_not_counted(tmp_path, made, small, monkeypatch):
    """Found to be bad, or too long to cut, after a special token was seen in them."""
    monkeypatch.setattr("tokenmill.encoding.encoder.UNCUT_BYTES", 4 * SMALL)
    line = b"word after word and then a line\n"
    bodies = [END.encode() + line * 30 + b"\xff", line * 30 + END.encode(), END.encode() + line * 9 + b"x" * 30 * SMALL]
    for i, body in enumerate(bodies):
        (tmp_path / f"{i}.txt").write_bytes(body)
    store, finished = build(str(tmp_path / "*.txt"), made("byte_level").library, tmp_path / "out", eos="none")
    assert (len(store), sum(store._manifest.quarantined.values())) == (1, 2)
    assert counted(store, finished) == 1


# Ordinary text: text.


def test_text_gives_what_a_tokenizer_gives_that_never_heard_of_them(kind):
    """Special tokens have no ids then: not as added tokens, not as words, pieces or merges. Nothing else changes."""
    special = {kind.vocabulary[name] for name in special_names(kind)}
    tokenizer, expected = tm.load_tokenizer(kind.library, "reference", "text"), ignorant(kind)
    assert tokenizer.vocab_size == len(kind.vocabulary)
    assert not special & set(tokenizer.encode(" ".join([*special_names(kind), "<b>"])))

    @settings(max_examples=60, deadline=None)
    @given(some_documents(sorted(special_names(kind))))
    def check(texts):
        for text in texts:
            ids = tokenizer.encode(text)
            assert ids == expected(text)
            assert not special & set(ids)

    check()


def test_text_of_real_documents(kind, real_texts):
    """Where no name is in a text, both policies give the same ids."""
    parse, text = (tm.load_tokenizer(kind.library, "reference", policy) for policy in ("parse", "text"))
    for document in real_texts[::40]:
        assert text.encode(document[:5000]) == parse.encode(document[:5000])


def test_models_that_would_find_the_names_by_themselves(made):
    """So that the tests above mean something: without added tokens, these models give special ids all the same."""
    for name, word in (("unigram", "</s>"), ("word_level", "</s>"), ("merged", "<|x|>"), ("prefixed", "<s>")):
        alone = made(name).changed(added_tokens=[])
        assert made(name).vocabulary[word] in alone.encode(word)


def test_added_tokens_that_are_not_special_keep_their_ids(kind):
    """Though special ones before and between them are gone, and though they are not in the model's vocabulary."""
    tokenizer = tm.load_tokenizer(kind.library, "reference", "text")
    ids = tokenizer.encode("<b> <d>")
    assert [i for i in ids if i in (kind.vocabulary["<b>"], kind.vocabulary["<d>"])] == [
        kind.vocabulary["<b>"],
        kind.vocabulary["<d>"],
    ]
    assert kind.vocabulary["<d>"] == len(kind.vocabulary) - 1


def test_what_an_unknown_letter_costs_is_as_before():
    """A Unigram weighs ways through a word by its lowest score; tokens that are added must not move that."""
    vocabulary = [("<unk>", 0.0), ("</s>", -0.1), ("▁", -2.0), ("ab", -20.0), ("c", -20.0), ("bc", -1.0), ("b", -3.0)]
    full = Written({"model": unigram(vocabulary, 0), "pre_tokenizer": metaspace()})
    full = full.with_tokens("</s>", "<a>").with_tokens("<b>", special=False)
    assert full.encode("abc") == tm.load_tokenizer(full.library, "reference", "text").encode("abc") == [2, 0, 5]


@pytest.mark.parametrize("name", ["byte_level", "sentence_piece"])
def test_fast_engines_take_the_names_for_text_too(name, made, real_texts, tmp_path):
    """An engine that was chosen for speed is proved under the policy it is used with."""
    full = made(name)
    tokenizer = tm.load_tokenizer(full.save(tmp_path / "tokenizer.json"), special_tokens="text")
    assert tokenizer.choose_engine() != "tokenizers"
    names = sorted(special_names(full))
    texts = [text[:3000] + draw + text[3000:4000] for text, draw in zip(real_texts, names * 20, strict=False)]
    store, finished = build(iter([*texts, *names, "plain"]), tokenizer, tmp_path / "out", engine=None, eos="none")
    assert documents(store) == list(map(ignorant(full), [*texts, *names, "plain"]))
    assert counted(store, finished) == len(texts) + len(names)
    assert finished.spot_checked > 0


AWKWARD = ["---", "<s>", "</s>", "<s>\n", "x</s>", "é"]


def test_documents_that_hold_a_name_are_found():
    """Any name in any document, and none that two neighbours make up together."""
    reference = words(40, []).with_tokens(*AWKWARD)
    encoder = tm.load_tokenizer(reference.library, "reference", "text")._encoder()
    pieces = st.sampled_from([*AWKWARD, *"-<s>/xé\n ", "</", "s>", "--", "word"])

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.lists(pieces, max_size=4).map("".join), max_size=8), st.integers(0, 3))
    def check(texts, skip):
        values = text_array(texts).slice(skip)
        holds = [i for i, text in enumerate(texts[skip:]) if any(name in text for name in AWKWARD)]
        assert list(encoder.encode(values).special) == holds

    check()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_build_that_takes_them_for_text(corpus, tokenizer_path, tmp_path, capsys, workers):
    """No document's end is forged; the true one is added, and shown by its name."""
    out = tmp_path / "out"
    options: dict[str, Any] = {"workers": workers, "shard_bytes": "8KB", "engine": "gigatoken"}
    store, finished = build(corpus, tokenizer_path, out, special_tokens="text", **options)
    assert counted(store, finished) == WITH_NAME
    expected = ignorant(Written.read(tokenizer_path / "tokenizer.json"))
    texts = [text for seed, count in ((1, 140), (2, 210), (3, 70)) for text in prose(seed, count)]
    assert documents(store) == [[*expected(text), 0] for text in texts]
    assert sum(int((ids == 0).sum()) for ids in store) == len(store)
    tokenizer = tm.load_tokenizer(store.tokenizer.path)
    assert tokenizer.decode(store[0]) == texts[0] + END
    assert texts[0].startswith(END)
    assert main(["show", str(out), "--doc", "0", "--tokens", "1000"]) == 0
    assert texts[0] + END in capsys.readouterr().out
    assert main(["info", str(out)]) == 0
    assert f"{WITH_NAME} documents hold special tokens, encoded as ordinary text" in capsys.readouterr().out


def test_a_store_is_of_one_policy(jsonl, tokenizer_path, tmp_path, capsys):
    """Other ids, so another tokenizer; a build that asks for the other one is told what differs."""
    corpus, command = jsonl(["a", f"b{END}"]), ["-t", str(tokenizer_path), "-q", "--engine", "reference"]
    prints = {
        policy: tm.load_tokenizer(tokenizer_path, special_tokens=policy).fingerprint for policy in ("parse", "text")
    }
    assert prints["parse"] != prints["text"]
    for policy, other in (("parse", "text"), ("text", "parse")):
        store, _ = build(corpus, tokenizer_path, tmp_path / policy, special_tokens=policy)
        assert store.tokenizer.fingerprint == prints[policy]
        with pytest.raises(MismatchError, match=f"special_tokens: was '{policy}', now '{other}'"):
            build(corpus, tokenizer_path, tmp_path / policy, special_tokens=other)
        assert main(["build", str(corpus), "-o", str(tmp_path / policy), "--special-tokens", other, *command]) == 3
        assert "special_tokens" in capsys.readouterr().err
        assert main(["build", str(corpus), "-o", str(tmp_path / policy), "--special-tokens", policy, *command]) == 0
    assert tm.open(tmp_path / "parse").fingerprint != tm.open(tmp_path / "text").fingerprint


def test_the_tokenizer_in_a_store_keeps_the_policy(kind, tmp_path):
    """Loaded from there it does the same, unless another policy is asked for."""
    texts = [" ".join(special_names(kind)), "plain words"]
    for policy in ("parse", "text"):
        store, _ = build(iter(texts), kind.library, tmp_path / policy, special_tokens=policy, eos="none")
        again = tm.load_tokenizer(store.tokenizer.path, "reference")
        assert (again.special_tokens, again.fingerprint) == (policy, store.tokenizer.fingerprint)
        assert again.encode(texts[0]) == store[0].tolist()
        other = tm.load_tokenizer(store.tokenizer.path, "reference", "parse" if policy == "text" else "text")
        assert other.encode(texts[0]) != store[0].tolist()
        assert tm.load_tokenizer(other, special_tokens=policy).fingerprint == again.fingerprint


def test_an_unknown_policy(tokenizer_path):
    with pytest.raises(tm.errors.UsageError, match=r"special_tokens='ids'.*parse, text, error"):
        tm.load_tokenizer(tokenizer_path, special_tokens="ids")


# The end of the build: error.


def bad_jsonl(folder: Path, text: str) -> Path:
    """A file whose rows are not all documents; the text is in row 300."""
    lines = [json.dumps({"text": f"document {i} with some words"}) for i in range(320)]
    lines[3], lines[5], lines[100:103], lines[299] = "{bad", "", ["", "null", '{"text": 5}'], '{"no": 1}'
    lines[300] = json.dumps({"text": text})
    path = folder / "bad.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def bad_csv(folder: Path, text: str) -> Path:
    rows = ["id,text", *(f"{i},row {i}" for i in range(40))]
    rows[8], rows[31] = "seven,fields,too,many", f'30,"a ""quoted""\n{text}"'
    path = folder / "bad.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def bad_parquet(folder: Path, text: str) -> Path:
    texts = [None if i % 10 == 3 else f"row {i} " * 20 for i in range(300)]
    texts[222] = text
    path = folder / "bad.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=20, compression=None)
    return path


def long_lines(folder: Path, text: str) -> Path:
    """Lines of which some are long, and some of those bad only at their ends."""
    line = b"some words and more " * 40
    lines = [b"short", line, line + b"\xff", b"", line + b"\xff", text.encode(), b"after"]
    path = folder / "lines.txt"
    path.write_bytes(b"\n".join(lines))
    return path


CORPORA = {"jsonl": (bad_jsonl, 300), "csv": (bad_csv, 30), "parquet": (bad_parquet, 222), "lines": (long_lines, 5)}


@pytest.mark.parametrize(("format", "workers"), [*((format, 0) for format in CORPORA), ("jsonl", 2), ("parquet", 2)])
def test_error_names_the_document(tmp_path, tokenizer_path, small, format, workers):
    """By file and row: past bad rows and blank ones, in a file cut into pieces, among other files."""
    write, row = CORPORA[format]
    source = tmp_path / "in"
    write_jsonl(source / "a.jsonl", [f"good {i}" for i in range(50)])
    write_jsonl(source / "z.jsonl", ["more", "of", "it"])
    options: dict[str, Any] = {"shard_bytes": "4KB", "workers": workers, "special_tokens": "error"}
    inputs: tuple[str, ...] = (str(source / "*.jsonl"),)
    if format == "lines":
        inputs, options = (), options | {"format": "lines"}
    path = write(source, f"so it ends{END} here")
    with pytest.raises(DocumentError) as caught:
        build((*inputs, str(path)), tokenizer_path, tmp_path / "out", **options)
    assert str(caught.value).startswith(f"{path}, row {row}: ")
    assert "--special-tokens text" in str(caught.value)
    with pytest.raises(tm.errors.StoreError, match="interrupted"):
        tm.open(tmp_path / "out")
    write(source, "so it ends < here")
    clean, finished = build((*inputs, str(path)), tokenizer_path, tmp_path / "out", **options | {"workers": 0})
    assert (clean.complete, counted(clean, finished)) == (True, 0)
    assert (str(path), row) in map(clean.locate, range(len(clean)))


def test_error_by_command(jsonl, tokenizer_path, tmp_path, capsys):
    """Exit code 1, and the message on standard error."""
    corpus = jsonl(["fine", "<|endoftext|", END])
    command = [
        "build",
        str(corpus),
        "-t",
        str(tokenizer_path),
        "-o",
        str(tmp_path / "out"),
        "-q",
        "--special-tokens",
        "error",
    ]
    assert main([*command, "--engine", "reference", "--workers", "0"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{corpus}, row 2: the text holds a special token" in err


def test_error_in_a_long_document(tmp_path, made, small):
    """It is named like any other, after long ones that are clean, or that were left out when their end was seen."""
    for i, name in enumerate(("", "<nothing>", "", "<end of text>")):
        (tmp_path / f"{i}.txt").write_bytes(long_texts(name)[5].encode() + b"\xff" * (i in (0, 2)))
    with pytest.raises(DocumentError, match=r"3\.txt, row 0: the text holds a special token"):
        build(str(tmp_path / "*.txt"), made("byte_level").library, tmp_path / "out", eos="none", special_tokens="error")


@pytest.mark.parametrize("workers", [0, 2])
def test_error_asked_of_a_store_that_is_there(corpus, tokenizer_path, tmp_path, workers):
    """It holds such documents: it is told so, and left as it is."""
    options: dict[str, Any] = {"shard_bytes": "8KB"}
    store, _ = build(corpus, tokenizer_path, tmp_path / "out", **options)
    before = shard_files(store)
    with pytest.raises(DocumentError, match=r"[abc]\.jsonl, row \d+: the text holds a special token"):
        build(corpus, tokenizer_path, tmp_path / "out", special_tokens="error", workers=workers, **options)
    again = tm.open(tmp_path / "out")
    assert again.verify() == []
    assert {name: body for name, body in shard_files(again).items() if name in before} == before
    store, last = build(corpus, tokenizer_path, tmp_path / "out", **options)
    assert last.name == "up_to_date"
    assert store._manifest.special_documents == WITH_NAME


def test_error_with_clean_text_is_parse(jsonl, tokenizer_path, tmp_path):
    """The same bytes, the same store: a build with one goes on with the other."""
    corpus = jsonl([f"document {i} < | endoftext | >" for i in range(100)])
    parse, _ = build(corpus, tokenizer_path, tmp_path / "parse", shard_bytes="2KB")
    error, finished = build(corpus, tokenizer_path, tmp_path / "error", shard_bytes="2KB", special_tokens="error")
    assert counted(error, finished) == 0
    assert error.fingerprint == parse.fingerprint
    assert shard_files(error) == shard_files(parse)
    for path, policy in (("parse", "error"), ("error", "parse")):
        _, last = build(corpus, tokenizer_path, tmp_path / path, shard_bytes="2KB", special_tokens=policy)
        assert last.name == "up_to_date"
    assert tm.load_tokenizer(error.tokenizer.path).special_tokens == "parse"


def test_error_does_not_mind_what_is_unknown(made, tmp_path):
    """The unknown token says nothing of what a text holds; what is put around a document is not in its text."""
    texts = ["\U0010ffff words", "plain"]
    store, finished = build(
        iter(texts), made("word_piece").library, tmp_path / "out", eos="[SEP]", bos="[CLS]", special_tokens="error"
    )
    assert counted(store, finished) == 0
    assert made("word_piece").vocabulary["[UNK]"] in store[0].tolist()


# Special tokens that are also something else: characters, bytes and pieces of the model, the unknown token.

WORDS = ["the", "▁a", "Ġa", "==", "<a>", "##he", "unk"]  # made by merges, or pieces
BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def bpe_by_hand(names: list[str], **options: Any) -> dict[str, Any]:
    """BPE that merges all the beginnings of its words."""
    merges = dict.fromkeys((word[:i], word[i]) for word in WORDS for i in range(1, len(word)))
    vocabulary = dict.fromkeys([*names, *(a + b for a, b in merges), *"▁Ġ"])
    return {"type": "BPE", "vocab": {name: i for i, name in enumerate(vocabulary)}, "merges": list(merges)} | options


def by_hand() -> dict[str, dict[str, Any]]:
    """Small tokenizers of all kinds; those that give any text back are the first three."""
    letters = [chr(code) for code in range(33, 127)]
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    model = {"unk_token": "<unk>", "max_input_chars_per_word": 100, "continuing_subword_prefix": "##"}
    whole = {name: i for i, name in enumerate(["<unk>", *pieces, *WORDS])}
    bytes_for_rest = bpe_by_hand(["<unk>", *BYTE_NAMES, *letters], unk_token="<unk>", byte_fallback=True)
    back = [SPACES | {"pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    byte_level = {"pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL}
    return {
        "byte_level": byte_level | {"model": bpe_by_hand(list(byte_alphabet()))},
        "whole_words": byte_level | {"model": bpe_by_hand(list(byte_alphabet()), ignore_merges=True)},
        "byte_fallback": {
            "normalizer": SPACES,
            "decoder": {"type": "Sequence", "decoders": back},
            "model": bytes_for_rest,
        },
        "word_piece": {
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordPiece", "vocab": whole} | model,
        },
        "unigram": {
            "normalizer": SPACES,
            "model": {
                "type": "Unigram",
                "unk_id": 0,
                "vocab": [["<unk>", 0.0], *([name, -3.0] for name in [*letters, "▁", *WORDS])],
            },
        },
        "word_level": {
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": whole, "unk_token": "<unk>"},
        },
    }


LOSSLESS = ["byte_level", "whole_words", "byte_fallback"]
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
ODD = [*WORDS, *"=aĠ▁<é中", " ", "\n", "a><b", "<a><b>", "<unk>", "<0x0A>", "th", "##e"]  # names of special tokens
ODD_TEXTS = st.lists(st.sampled_from([*ODD, "b", ">", "e", " a", "語", "\x00", "<UNK>"]), max_size=10).map("".join)
ODD_TOKENS = st.dictionaries(st.sampled_from(ODD), st.tuples(*(st.booleans() for _ in FLAGS)), max_size=6)


ASCII_WORDS = {chr(code) for code in range(33, 127)}


def hand_made(folder: Path, body: dict[str, Any], tokens: dict[str, tuple[bool, ...]], policy: str) -> tm.Tokenizer:
    """One of these tokenizers with special tokens, which keep the ids that their names have in its vocabulary."""
    vocabulary = body["model"]["vocab"]
    known = vocabulary if isinstance(vocabulary, dict) else {name: i for i, (name, _) in enumerate(vocabulary)}
    ids = {name: known[name] for name in tokens if name in known}
    ids |= {name: len(known) + i for i, name in enumerate(name for name in tokens if name not in known)}
    if not has_parts():  # 1.0 panics at such a name that stands inside a word
        tokens = {name: (flags[0] and name[0] in ASCII_WORDS, *flags[1:]) for name, flags in tokens.items()}
    added = [
        {"id": ids[name], "content": name, "special": True, **dict(zip(FLAGS, flags, strict=True))}
        for name, flags in sorted(tokens.items(), key=lambda token: ids[token[0]])
    ]
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added} | body))
    return tm.load_tokenizer(folder / "tokenizer.json", "reference", policy)


@pytest.mark.parametrize("name", by_hand())
def test_text_is_kept_whatever_is_special(name, tmp_path):
    """No text is lost, and none becomes a special id but that of a character which the model needs."""

    @settings(max_examples=60, deadline=None)
    @given(ODD_TOKENS, st.lists(ODD_TEXTS, min_size=1, max_size=4))
    @example({"=": (False,) * 4, "Ġ": (False,) * 4, "▁": (False,) * 4, "é": (False,) * 4}, ["= a", "é語 == ="])
    @example({"<unk>": (False,) * 4, "<0x0A>": (False,) * 4}, ["<unk>", "<0x0A>"])
    def check(tokens, texts):
        tokenizer = hand_made(tmp_path, by_hand()[name], tokens, "text")
        found = tokens.keys() & tokenizer.added.keys()
        assert found == tokens.keys() or not has_parts()  # for 1.0 tokens are one if their normalized names are equal
        not_for_text = {tokenizer.added[name] for name in found if len(name) > 1 or name in "中 \n"}
        not_for_text -= {tokenizer.added.get("<0x0A>")} if name == "byte_fallback" and "\n" in "".join(texts) else set()
        for text in texts:
            ids = set(tokenizer.encode(text))
            if name in LOSSLESS:
                kept = text.replace("▁", " ") if name == "byte_fallback" else text  # it takes one for the other
                assert tokenizer.decode(tokenizer.encode(text)) == kept
                assert not ids & not_for_text
            assert not ids & set(tokenizer.special_ids)

    check()


@pytest.mark.parametrize("name", ["byte_fallback", "word_piece", "unigram", "word_level"])
def test_the_unknown_token_counts_where_its_name_is_found(name, tmp_path):
    """And not where the model gives its id to what it does not know, as a model that calls it otherwise tells."""
    other = by_hand()[name]
    if name == "unigram":
        other["model"]["vocab"][0][0] = "unknown"
    else:
        other["model"]["vocab"] = {"unknown" if n == "<unk>" else n: i for n, i in other["model"]["vocab"].items()}
        other["model"]["unk_token"] = "unknown"
    (tmp_path / "other").mkdir()

    @settings(max_examples=60, deadline=None)
    @given(ODD_TOKENS, st.tuples(*(st.booleans() for _ in FLAGS)), st.lists(ODD_TEXTS, min_size=1, max_size=5))
    @example({}, (False, False, False, True), ["<unk>", "<UNK>", "語"])
    def check(tokens, flags, texts):
        # A model that does not know the word "<unk>" begins it with "<", where that is no special token: inside a word.
        assume(not ("<" in tokens and (tokens["<"][0] or flags[0]) and any("<unk>" in text.lower() for text in texts)))
        tokens = tokens | {"<unk>": flags}
        tokens.pop("<0x0A>", None)
        tokenizer = hand_made(tmp_path, by_hand()[name], tokens, "error")
        apart = hand_made(tmp_path / "other", other, tokens, "parse")
        special = {apart.added[token] for token in tokens}
        expected = [i for i, text in enumerate(texts) if special & set(apart.encode(text))]
        assert list(tokenizer._encoder().encode(text_array(texts)).special) == expected

    check()


def test_a_character_that_is_special_is_not_lost(tmp_path):
    """As ordinary text it is what it was before it became special; as a special token it is found."""
    body = json.loads((Path(tm.__file__).parent / "data/demo_tokenizer/tokenizer.json").read_text("utf-8"))
    body["added_tokens"].append(body["added_tokens"][0] | {"id": body["model"]["vocab"]["="], "content": "="})
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))
    tokenizer = tm.load_tokenizer(tmp_path, "reference", "text")
    text = "a = b == c" + END
    assert tokenizer.encode(text) == tm.load_tokenizer("demo", "reference", "text").encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    store, finished = build(iter(["a = b", END]), tmp_path, tmp_path / "out", special_tokens="text")
    assert counted(store, finished) == 1
    with pytest.raises(DocumentError, match="special token"):
        build(iter(["a", "a = b"]), tmp_path, tmp_path / "error", special_tokens="error")


@pytest.mark.parametrize("token", ["<unk>", "<0x0A>"])
def test_error_minds_the_name_of_what_is_also_produced(token, tmp_path):
    """The unknown token or a byte, in a text; not a character that is unknown, or becomes bytes."""
    hand_made(tmp_path, by_hand()["byte_fallback"], {token: (False,) * 4}, "parse")
    options: dict[str, Any] = {"eos": "none", "special_tokens": "error"}
    with pytest.raises(DocumentError, match="special token"):
        build(iter(["fine", f"a{token}b"]), tmp_path, tmp_path / "out", **options)
    assert counted(*build(iter(["a\nb 語", "< unk>"]), tmp_path, tmp_path / "clean", **options)) == 0
    assert counted(*build(iter(["a\nb", f"a{token}b"]), tmp_path, tmp_path / "parse", eos="none")) == 1


@pytest.mark.parametrize("name", ["<unk>", "unk", ""])
def test_the_unknown_token_in_a_document_in_parts(name, tmp_path, monkeypatch):
    """Its id comes with words of every part, its name with one of them or none."""
    monkeypatch.setattr("tokenmill.encoding.encoder.cached_rules", quick_rules)
    encoder = hand_made(tmp_path, by_hand()["word_level"], {"<unk>": (False,) * 4}, "parse")._encoder()
    document, data = LongDocument(encoder), f"{'some words ' * 30}{name}{' and more' * 30}".encode()
    parts = [document.feed(data[i : i + 50]) for i in range(0, len(data), 50)]
    assert sum(len(part) > 0 for part in parts) > 5
    document.finish()
    assert document.special == (name == "<unk>")


# What stands around documents.


def sentences() -> Written:
    """Words, a beginning and an end; its file says to put both around every text."""
    made = word_level(["some words here"])
    return made.changed(post_processor=template({"<s>": 1}, {"</s>": 2}))


@pytest.mark.parametrize(
    ("bos", "eos", "lead", "trail"),
    [
        ("<s>", "</s>", [1], [2]),
        (1, 2, [1], [2]),
        ("auto", "auto", [1], [2]),
        ("none", "none", [], []),
        (None, None, [], []),
        ("auto", "none", [1], []),
        ("none", "some", [], [4]),
        ("2", "1", [2], [1]),
    ],
)
@pytest.mark.parametrize("special_tokens", ["parse", "text"])
def test_bos_and_eos(tmp_path, bos, eos, lead, trail, special_tokens):
    """By name, id or as the tokenizer says, and once: what a file would add by itself is not added to it."""
    tokenizer = sentences().library
    assert tokenizer.encode("some words").ids == [1, 4, 5, 2]
    texts = ["some words", "", "here"]
    store, _ = build(iter(texts), tokenizer, tmp_path / "out", bos=bos, eos=eos, special_tokens=special_tokens)
    assert documents(store) == [[*lead, *ids, *trail] for ids in ([4, 5], [], [3])]
    around = (store.tokenizer.bos_id, store.tokenizer.eos_id)
    assert around == ((lead or [None])[0], (trail or [None])[0])


def test_bos_and_eos_by_command(tmp_path, jsonl, capsys):
    """The same, and what they are is said with the result."""
    sentences().save(tmp_path / "tokenizer.json")
    command = [
        "build",
        str(jsonl(["some words", ""])),
        "-t",
        str(tmp_path / "tokenizer.json"),
        "--engine",
        "reference",
    ]
    for i, (bos, eos, expected) in enumerate([("<s>", "2", [1, 4, 5, 2]), ("auto", "none", [1, 4, 5])]):
        out = tmp_path / f"out{i}"
        assert main([*command, "-o", str(out), "--bos", bos, "--eos", eos]) == 0
        assert "bos 1 <s>" in capsys.readouterr().out
        assert tm.open(out)[0].tolist() == expected


STARTS = [
    ("<s> some words", [1, 4, 5]),
    ("<s>", [1]),
    ("<s><s> some", [1, 1, 4]),  # twice in the text is what the text says
    ("some <s> words", [4, 1, 5]),
    ("</s> some", [2, 4]),
    ("", []),
]


def test_no_document_begins_with_bos_twice(tmp_path):
    """A text that begins with the name of bos has it already."""
    store, _ = build(iter([text for text, _ in STARTS]), sentences().library, tmp_path / "out", bos="<s>", eos="</s>")
    assert documents(store) == [[*([] if ids[:1] == [1] else [1]), *ids, 2] for _, ids in STARTS]


def test_bos_is_added_where_its_name_is_ordinary_text(tmp_path):
    """Such a text does not begin with it."""
    texts = [text for text, _ in STARTS]
    store, _ = build(iter(texts), sentences().library, tmp_path / "out", bos="<s>", eos="</s>", special_tokens="text")
    expected = ignorant(sentences())
    assert documents(store) == [[1, *expected(text), 2] for text in texts]


def odd_letters() -> Written:
    """Letters, of which some are not in the vocabulary and give no id at all: a document may have none for a long while."""
    return Written({"model": bpe({"a": 0, "b": 1})}).with_tokens("<s>", "<end of text>", "</s>")


@pytest.fixture(scope="module")
def in_parts(made) -> Callable[[str, str], Encoder]:
    """Encoders with bos and eos, whose rules for cutting are found once."""

    @cache
    def encoder(name: str, policy: str) -> Encoder:
        full = odd_letters() if name == "odd_letters" else made(name)
        bos, eos = ("<a>", "<c>") if name == "byte_level" else ("<s>", "</s>")
        found = tm.load_tokenizer(full.library, "reference", policy)._encoder(
            full.vocabulary[bos], full.vocabulary[eos]
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tokenmill.encoding.encoder.cached_rules", quick_rules)
            assert found.rules
        return found

    return encoder


@pytest.mark.parametrize("policy", ["parse", "text"])
@pytest.mark.parametrize("name", ["byte_level", "odd_letters"])
def test_parts_of_a_document_make_the_whole(in_parts, name, policy):
    """With what stands around it, and whether it holds a special token, wherever it is cut."""
    encoder = in_parts(name, policy)
    names = ["<s>", "<a>", "<end of text>", "</s>", "<c>", "<|endoftext|>"]
    pieces = st.sampled_from(
        [*names, "ab", "ab ab", " zzz", "zz zz ", "zz\nzz", "the end of text", "\n", "x\nab", "中"]
    )

    @settings(max_examples=100, deadline=None)
    @given(st.lists(pieces, max_size=25).map("".join), st.lists(st.integers(0, 200), max_size=12))
    @example("zz\nzz<s>ab", [5])  # of the first part no id comes, and then the document begins with bos
    def check(text, cuts):
        whole = encoder.encode(text_array([text]))
        data, document = text.encode(), LongDocument(encoder)
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        parts = [document.feed(data[a:b]) for a, b in pairwise(edges)]
        assert np.concatenate([*parts, document.finish()]).tolist() == whole.ids.tolist()
        assert document.special == bool(len(whole.special))

    check()


@pytest.mark.parametrize("special_tokens", ["parse", "text"])
def test_long_documents_that_begin_with_bos(tmp_path, made, small, special_tokens):
    """They are treated as short ones are."""
    full = made("byte_level")
    bos, eos = full.vocabulary["<a>"], full.vocabulary["<c>"]
    texts = ["<a>" + long_texts("")[0], long_texts("<a>")[0], "<a>short", "<a>" * 100 + long_texts("")[3]]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text)
    store, finished = build(
        str(tmp_path / "*.txt"), full.library, tmp_path / "out", bos="<a>", eos="<c>", special_tokens=special_tokens
    )
    inner = ids_of(full, texts) if special_tokens == "parse" else list(map(ignorant(full), texts))
    assert documents(store) == [[*([] if ids[0] == bos else [bos]), *ids, eos] for ids in inner]
    assert counted(store, finished) == 4


def test_bytes_that_a_model_falls_back_to_are_no_special_tokens(tmp_path, kinds):
    """Some files list the 256 byte tokens as special. Text still needs them, and a rare letter is no special token."""
    body = json.loads(kinds["sentence_piece"].read_text("utf-8"))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    body["added_tokens"] += [{"id": body["model"]["vocab"][name], "content": name, **flags} for name in names]
    (tmp_path / "tokenizer.json").write_text(json.dumps(body), "utf-8")
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    if has_parts():
        plain.encode_special_tokens = True
    for policy in ("parse", "text"):
        tokenizer = tm.load_tokenizer(tmp_path, "reference", policy)
        assert tokenizer.encode("aéb 语") == plain.encode("aéb 语", add_special_tokens=False).ids
        store = tm.build(["aéb 语"], tokenizer, tmp_path / policy, workers=0, progress="quiet")
        assert store._manifest.special_documents == 0


def test_a_tokenizer_that_was_there_before_is_forgotten(tmp_path):
    """Built anew with another tokenizer, a store's own folder holds that one and nothing else."""
    import io

    import sentencepiece

    out = io.BytesIO()
    lines = ["some words of text", "and some more of the same words"] * 50
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=40, hard_vocab_limit=False, minloglevel=3
    )
    (tmp_path / "own.model").write_bytes(out.getvalue())
    build(["some words"], "bytes", tmp_path / "store")
    store, _ = build(["some words"], tmp_path / "own.model", tmp_path / "store", force=True)
    again = tm.load_tokenizer(store.tokenizer.path)
    assert again.fingerprint == store.tokenizer.fingerprint
    assert again.decode(store[0]).startswith("some words")
    assert store.verify() == []
