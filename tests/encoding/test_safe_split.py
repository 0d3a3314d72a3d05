"""Cutting: a document too long for one call is encoded in parts, to exactly the ids of the whole, or not at all."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_checks import quick_rules
from tokenizer_kinds import KINDS, NASTY
from written_tokenizers import Part, Written, bpe, byte_level, normalizers, replace, split, word_level

import tokenmill as tm
from tokenmill.building.plan import Task
from tokenmill.building.task import TaskOptions, encode_task
from tokenmill.encoding.encoder import LongDocument, TooLong
from tokenmill.encoding.safe_split import last_cut, safe_rules
from tokenmill.encoding.tokenizer_json import byte_alphabet
from tokenmill.reading import Piece
from tokenmill.store.facts import info

SMALL = 200  # what is "long" here, in bytes


@pytest.fixture(autouse=True)
def _quick_rules(monkeypatch):
    """Encoders cut where the quick check allows it. What the full check allows is tested by itself."""
    monkeypatch.setattr("tokenmill.encoding.encoder.cached_rules", quick_rules)


@pytest.fixture(scope="module")
def encoders(kinds):
    """Of each kind of tokenizer: (an encoder, the reference, its path). One of them with a fast engine."""
    made = {}
    for name, path in kinds.items():
        encoder = tm.load_tokenizer(path, "gigatoken" if name == "shipped" else "reference")._encoder()
        made[name] = encoder, tokenizers.Tokenizer.from_file(str(path)), path
    return made


@pytest.fixture(params=["shipped", *KINDS])
def encoder(request, encoders):
    return encoders[request.param]


def fed(encoder, data: bytes, cuts: list[int]) -> list[int]:
    """The ids of a document fed in parts."""
    document = LongDocument(encoder)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parts = [document.feed(data[a:b]) for a, b in pairwise(edges)]
    return np.concatenate([*parts, document.finish()]).tolist()


def whole(reference: tokenizers.Tokenizer, text: str) -> list[int]:
    return reference.encode(text, add_special_tokens=False).ids


# The rules.


def test_every_kind_can_be_cut(encoder):
    """A tokenizer of any of the usual kinds has places where its documents may be cut: in the full check too."""
    mill, _, path = encoder
    assert safe_rules(path.read_text("utf-8")) == mill.rules != []


def test_real_text_in_parts(encoder, real_texts):
    """Real text fed in thousands of small parts, cut wherever the rules allow, has the ids of the whole."""
    mill, reference, _ = encoder
    for text in real_texts[3::70]:
        data = text[:30_000].encode()
        cuts = np.random.default_rng(3).integers(0, len(data), len(data) // 60).tolist()
        assert fed(mill, data, cuts) == whole(reference, data.decode())


def test_any_text_in_any_parts(encoder):
    """Any text over an alphabet of everything that has ever gone wrong, fed in any parts, mid-character too."""
    mill, reference, _ = encoder
    pieces = st.sampled_from([*NASTY, " ", " ", "\n", "\n", "ab", "Zed", "don't", " the", "\nword", "x y", "the\nend"])

    @settings(max_examples=150, deadline=None)
    @given(st.lists(pieces, max_size=60).map("".join), st.lists(st.integers(0, 400), max_size=20))
    def check(text, cuts):
        assert fed(mill, text.encode(), cuts) == whole(reference, text)

    check()


def test_every_cut_a_rule_allows(encoder, real_texts):
    """Not only the last one of each part: every place that a rule finds in real text is a safe place."""
    mill, reference, _ = encoder
    data = real_texts[5][:40_000].encode()
    for rule in mill.rules:
        places = [match.end() for match in rule.pattern.finditer(data)]
        for place in places[:: max(1, len(places) // 120)]:
            first = data[max(0, place - 200) : place].decode(errors="ignore")
            second = data[place : place + 200].decode(errors="ignore")
            rest = second.removeprefix(rule.space) if rule.drop else second
            assert whole(reference, first + second) == whole(reference, first) + whole(reference, rest), rule


def test_bos_and_eos_stand_once_around_a_document_in_parts(encoders, real_texts):
    _, reference, path = encoders["shipped"]
    encoder = tm.load_tokenizer(path, "reference")._encoder(bos_id=7, eos_id=0)
    text = real_texts[9][:2000]
    assert fed(encoder, text.encode(), list(range(0, 2000, 100))) == [7, *whole(reference, text), 0]
    assert fed(encoder, b"", []) == [7, 0]
    assert fed(encoder, b"x", []) == [7, *whole(reference, "x"), 0]


def test_memory_is_bounded_by_the_last_cut(encoder):
    """Ids come out while a document is still coming in, so a long one is never held whole."""
    mill, _, _ = encoder
    document = LongDocument(mill)
    given_out = sum(len(document.feed(b"some more words and\nlines of text ")) for _ in range(100))
    assert given_out > 0.9 * (given_out + len(document.finish()))


def test_the_last_cut_is_the_last():
    """Nothing after the cut could be cut by the same rules; nothing is cut where no rule applies."""
    words = word_level(["<unk>", "a", "b"], "<unk>")
    rules = quick_rules(Written({"model": words, "pre_tokenizer": {"type": "WhitespaceSplit"}}).to_str())
    assert rules
    data = b"some words here, and a few more 1 2 3 " * 5000
    first, second = last_cut(data, rules)
    assert data[first : first + 1] == b" "
    assert len(data) - first < 20
    assert second - first in (0, 1)
    for uncuttable in (b"", b" ", b"x" * 100_000, "中 文 ".encode() * 1000, b"1 2 3 4 " * 1000, b"a  b  " * 1000):
        assert last_cut(uncuttable, rules) is None


# Rules that would be wrong.


MARKS = replace(" ", "▁")
PREPEND = {"type": "Prepend", "prepend": "▁"}
BYTES = byte_level(add_prefix_space=False, use_regex=False)


def characters(*tokens: str, normalizer: Part | None = None, pre_tokenizer: Part | None = None) -> Written:
    """A BPE tokenizer of single characters and some longer tokens, merged from left to right."""
    alphabet = [*(chr(code) for code in range(32, 127)), "\n", "▁", "<unk>", *byte_alphabet()]
    vocabulary = dict.fromkeys(alphabet)
    merges: dict[tuple[str, str], None] = {}
    for token in tokens:
        for end in range(2, len(token) + 1):
            vocabulary[token[:end]] = None
            merges[token[: end - 1], token[end - 1]] = None
    model = bpe({token: i for i, token in enumerate(vocabulary)}, merges, unk_token="<unk>")
    return Written({"model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer})


def assert_never_wrong(reference: Written, text: str) -> None:
    """Wherever the rules found safe for a tokenizer allow a cut in a text, that cut is safe."""
    data = text.encode()
    for rule in quick_rules(reference.to_str()):
        for match in rule.pattern.finditer(data):
            first, second = data[: match.end()].decode(), data[match.end() :].decode()
            rest = second.removeprefix(rule.space) if rule.drop else second
            assert reference.encode(first) + reference.encode(rest) == reference.encode(text), (rule, first, second)


LONG = "he said that it was in the end of the\nday and the night of the\nend that was in it "


def test_no_spanning_token_no_worry():
    """Without a token across a space there is nothing to be wrong about, and there are rules."""
    reference = characters("the", " the", "at", " end")
    assert safe_rules(reference.to_str()) == quick_rules(reference.to_str()) != []
    assert_never_wrong(reference, LONG)


@pytest.mark.parametrize(
    ("tokens", "normalizer", "pre_tokenizer"),
    [
        (["of the", "in the"], None, None),
        (["e\nd", "e\n"], None, None),
        (["of▁the", "e▁"], MARKS, None),
        (["of▁the"], normalizers(PREPEND, MARKS), None),
        (["dĠt", "fĠ"], None, BYTES),
        (["eĊd"], None, BYTES),
        (["of_the", "e_d"], replace(" ", "_"), None),
        (["e d", "e e"], replace("\n", " "), None),
        (["e▁d", "e▁e"], normalizers(replace("\n", " "), MARKS), None),
        (["e~d", "f~"], normalizers(replace("\n", "~"), replace(" ", "~")), None),
        (["edo", "ft"], replace(" ", ""), None),
    ],
    ids=[
        "plain",
        "newline",
        "marks",
        "marks, one in front",
        "byte level",
        "byte level newline",
        "underscores",
        "newlines become spaces",
        "newlines become marks",
        "all white is ~",
        "spaces vanish",
    ],
)
def test_tokens_that_span_a_space(tokens, normalizer, pre_tokenizer):
    """A vocabulary with a token over a word's end, however the white space is spelled in it, allows no cut there."""
    reference = characters(*tokens, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert_never_wrong(reference, LONG)


def test_the_rule_that_a_spanning_token_forbids_is_not_there():
    """A token that holds "a b" forbids cuts before spaces, and leaves those before newlines."""
    assert {rule.space for rule in quick_rules(characters("a b").to_str())} == {"\n"}
    assert {rule.space for rule in quick_rules(characters("a\nb").to_str())} == {" "}
    assert safe_rules(characters("a b", "a\nb").to_str()) == []


@pytest.mark.parametrize(
    "added",
    [
        [{"content": "that it"}, {"content": "<end of the>"}],
        [{"content": "the\nend"}],
        [{"content": "end", "lstrip": True}],
        [{"content": "end", "rstrip": True}],
        [{"content": "nd", "single_word": True}],
    ],
    ids=["with a space", "with a newline", "eats left", "eats right", "word"],
)
def test_added_tokens_that_reach_across_a_space(added):
    """Added tokens may hold spaces, or eat them."""
    reference = characters("the", "at").with_tokens(*({**token, "normalized": False} for token in added), special=False)
    assert_never_wrong(reference, LONG + " <end of the> end " + LONG)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        {"type": "FixedLength", "length": 7},
        {"type": "FixedLength", "length": 40},
        split(r"\w+ \w+", regex=True),
    ],
    ids=["fixed 7", "fixed 40", "pairs of words"],
)
def test_pre_tokenizers_that_look_far(pre_tokenizer):
    """What is cut apart by counting, or in pairs, is not the same when counting starts anew."""
    assert_never_wrong(characters("the", "that", " was", "e end", "night", pre_tokenizer=pre_tokenizer), LONG)


def test_normalizers_that_mind_the_ends_of_a_text():
    """Stripping and prepending happen at the ends of a document, and a cut makes new ends."""
    normalizer = normalizers({"type": "Strip", "strip_left": True, "strip_right": True}, PREPEND)
    assert_never_wrong(characters("the", " the", "▁the", normalizer=normalizer), LONG)


# Long documents in a build.


@pytest.fixture
def small(monkeypatch):
    """Make documents of some hundred bytes long ones."""
    monkeypatch.setattr("tokenmill.reading.formats.text.LONG_TEXT", SMALL)
    monkeypatch.setattr("tokenmill.building.long_document.WHOLE_BYTES", SMALL)
    monkeypatch.setattr("tokenmill.building.long_document.PART_BYTES", SMALL)


def build(source, tokenizer_path, out, **options):
    return tm.build(source, tokenizer_path, out, eos="none", engine="reference", workers=0, progress="quiet", **options)


def left_out(store):
    lines = (store.path / "quarantine.jsonl").read_text().splitlines()
    return [(entry["row"], entry["reason"]) for entry in map(json.loads, lines)]


def check_text_bytes(store, texts):
    """The bytes of text a store tells of are those of the documents in it."""
    assert info(store.path)["text_bytes"] == sum(len(text.encode()) for text in texts)


def test_huge_text_files(tmp_path, encoder, real_texts, small):
    """Files far over the bound, read and encoded in parts, have the ids of the whole; small ones beside them too."""
    _, reference, path = encoder
    texts = ["short", real_texts[7][:20_000], "", real_texts[8][:5000] + "\n中文é" * 50, "last words"]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_bytes(text.encode())
    store = build(str(tmp_path / "*.txt"), path, tmp_path / "out")
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in texts]
    assert left_out(store) == []
    check_text_bytes(store, texts)
    assert store.verify() == []


@pytest.mark.parametrize("codec", ["", ".gz"])
@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_huge_lines(tmp_path, encoders, real_texts, small, codec, block_bytes, end):
    """Long lines between short ones, in blocks of any size and with either line end."""
    _, reference, path = encoders["shipped"]
    huge = [" ".join(text.split())[:6000] for text in real_texts[20:23]]
    texts = ["one", huge[0], "two", huge[1], huge[2], "three"]
    body = end.join(texts).encode() + end.encode()
    (tmp_path / f"a.txt{codec}").write_bytes(gzip.compress(body) if codec else body)
    source = tm.read(tmp_path / f"a.txt{codec}", format="lines")
    documents, facts = run(source, tm.load_tokenizer(path, "reference")._encoder(), tmp_path / "shard", block_bytes)
    assert documents == [whole(reference, text) for text in texts]
    assert facts["pieces"][0]["rows"] == len(texts)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_huge_records(tmp_path, encoders, real_texts, small, jsonl, name):
    """Long documents of formats that hold them whole are encoded in parts all the same."""
    _, reference, path = encoders["shipped"]
    texts = ["one", real_texts[11][:8000], "", "two", real_texts[12][:8000], "three " * 100]
    if name == "a.jsonl":
        jsonl(texts)
    else:
        pq.write_table(pa.table({"text": texts}), tmp_path / "corpus.parquet")
    store = build(str(tmp_path / "corpus.*"), path, tmp_path / "out")
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in texts]


def run(source, encoder, folder, block_bytes):
    """One task over one file, in blocks of a given size: (its documents' ids, the receipt)."""
    task = Task("0" * 24, (Piece(source.files[0]),))
    encoded = encode_task(task, source, encoder, folder, TaskOptions(block_bytes=block_bytes))
    receipt = encoded.writer.commit(**encoded.facts)
    ids, ends = (np.load(folder / f"{task.id}{suffix}") for suffix in (".npy", ".ends.npy"))
    return [part.tolist() for part in np.split(ids, ends)[:-1]], receipt


@pytest.mark.parametrize("where", [10, SMALL - 1, SMALL, SMALL + 1, 3000, -1])
def test_a_bad_byte_late_in_a_huge_document(tmp_path, encoders, real_texts, small, where):
    """The document is left out whole, however much of it had been encoded; its neighbours are untouched."""
    _, reference, path = encoders["shipped"]
    bad = bytearray(real_texts[7][:6000].encode())
    bad[where] = 0xFF
    good = ["short before", real_texts[8][:3000], "short after"]
    for name, body in (("a", good[0].encode()), ("b", bytes(bad)), ("c", good[1].encode()), ("d", good[2].encode())):
        (tmp_path / f"{name}.txt").write_bytes(body)
    store = build(str(tmp_path / "*.txt"), path, tmp_path / "out")
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in good]
    assert left_out(store) == [(0, "invalid utf-8")]
    assert store.locate(1).file.endswith("c.txt")
    assert store.verify() == []
    check_text_bytes(store, good)


@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
def test_bad_lines_among_huge_ones(tmp_path, encoders, real_texts, small, block_bytes):
    """Row numbers stay line numbers, whichever of the long lines are bad."""
    _, reference, path = encoders["shipped"]
    huge = " ".join(real_texts[20].split())[:3000]
    lines = [b"one", huge.encode() + b"\xff", huge.encode(), b"\xff", b"", b"two", b"\xff" + huge.encode(), b"three"]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
    source = tm.read(tmp_path / "a.txt", format="lines")
    documents, receipt = run(source, tm.load_tokenizer(path, "reference")._encoder(), tmp_path / "shard", block_bytes)
    assert documents == [whole(reference, text) for text in ("one", huge, "two", "three")]
    gone = [(row, reason) for row, count, reason, _ in receipt["pieces"][0]["skips"] for row in range(row, row + count)]
    assert gone == [(1, "invalid utf-8"), (3, "invalid utf-8"), (4, "blank"), (6, "invalid utf-8")]


def test_a_document_that_cannot_be_cut(tmp_path, encoders, real_texts, small, monkeypatch):
    """Too long to encode whole and without a place to cut: left out as too large, and nothing else with it."""
    monkeypatch.setattr("tokenmill.encoding.encoder.UNCUT_BYTES", 4 * SMALL)
    _, reference, path = encoders["shipped"]
    cuttable = real_texts[7][:6000]
    fits = "x" * (3 * SMALL)
    late = "some words to begin with and then " + "y" * (20 * SMALL) + " and words to end with"
    texts = ["before", "x" * (20 * SMALL), cuttable, fits, late, "after"]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text)
    store = build(str(tmp_path / "*.txt"), path, tmp_path / "out")
    kept = [texts[0], cuttable, fits, texts[5]]
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in kept]
    assert left_out(store) == [(0, "too large"), (0, "too large")]
    assert [store.locate(i).file[-5] for i in range(4)] == ["0", "2", "3", "5"]
    assert store.verify() == []
    check_text_bytes(store, kept)


def test_rows_that_cannot_be_cut(tmp_path, encoders, small, monkeypatch, jsonl):
    """The same in a file of records: by row, in order, and an error instead where that was asked for."""
    monkeypatch.setattr("tokenmill.encoding.encoder.UNCUT_BYTES", 4 * SMALL)
    _, reference, path = encoders["shipped"]
    texts = ["before", "x" * (20 * SMALL), "between", "", "y" * (20 * SMALL), "after"]
    corpus = jsonl(texts)
    with pytest.raises(tm.errors.DocumentError, match=r"row 1: too large"):
        build(corpus, path, tmp_path / "raise", on_error="raise")
    with open(corpus, "a") as out:
        out.write("not json\n")
    store = build(corpus, path, tmp_path / "out")
    kept = [text for text in texts if len(text) < SMALL]
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in kept]
    assert left_out(store) == [(1, "too large"), (4, "too large"), (6, "bad json")]
    assert [store.locate(i).row for i in range(len(store))] == [0, 2, 3, 5]


def test_a_document_without_a_cut_is_held_only_so_far(encoders, monkeypatch):
    """The bound is on what is held: a document may be as long as it likes if it can be cut."""
    monkeypatch.setattr("tokenmill.encoding.encoder.UNCUT_BYTES", 1000)
    mill, _, _ = encoders["shipped"]
    document = LongDocument(mill)
    for _ in range(100):
        document.feed(b"word after word " * 10)
    document.feed(b"x" * 900)
    with pytest.raises(TooLong):
        document.feed(b"x" * 900)


def test_a_broken_file_takes_its_long_document_with_it(tmp_path, encoders, real_texts, small):
    """A compressed file cut short after much of it was encoded leaves no trace in the shard."""
    _, reference, path = encoders["shipped"]
    (tmp_path / "a.txt").write_text("before")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(real_texts[7].encode())[:-200])
    (tmp_path / "c.txt").write_text(real_texts[8][:3000])
    store = build(str(tmp_path / "*.txt*"), path, tmp_path / "out")
    assert [ids.tolist() for ids in store] == [whole(reference, text) for text in ("before", real_texts[8][:3000])]
    assert [entry["file"] for entry in store.failed] == [str(tmp_path / "b.txt.gz")]
    assert store.verify() == []


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (replace("New York", "NY"), None),
        (replace("New York", "NY", regex=True), None),
        (None, split("of the")),
        (None, split(r"New York|\w+|\s+", regex=True)),
        (None, split(r"(?<=the)\s|\w+|\s+", regex=True)),
    ],
)
def test_patterns_about_words_allow_no_cut(normalizer, pre_tokenizer):
    """What looks further than a character is not trusted, whatever the contexts tried say."""
    reference = characters("the", "at", normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert safe_rules(reference.to_str()) == []
