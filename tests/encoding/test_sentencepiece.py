"""SentencePiece models as tokenizer.json: the ids are those of sentencepiece, or there is no conversion."""

from __future__ import annotations

import io
import json
import random
import struct
import sysconfig
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import from_json

from tokenmill.encoding.conversion.sentencepiece_model import Model, read_model, tokenizer_json
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.hf_tokenizers import HfTokenizer
from tokenmill.encoding.selection.suite import texts as suite_texts
from tokenmill.errors import TokenizerError

IDENTITY = {"normalization_rule_name": "identity"}
KEEP = {"remove_extra_whitespaces": False}
BARE = {"add_dummy_prefix": False}
BYTES = {"byte_fallback": True}
USER = {"user_defined_symbols": ["<sep>", "def", "self", "<sep>x", "(", "[a.b]", "|"]}
BPE = {
    "like llama": IDENTITY | KEEP | BYTES,
    "like gemma": IDENTITY | KEEP | BYTES | BARE | {"user_defined_symbols": ["\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<b>"]},
    "like mistral": IDENTITY | KEEP | BYTES | USER,
    "runs with gaps": IDENTITY | KEEP | BARE | {"user_defined_symbols": ["▁▁", "▁▁▁▁", '▁"', '"x', "7"]},
    "only runs": IDENTITY | KEEP | {"user_defined_symbols": ["▁▁", "▁▁▁"]},
    "squeezed": IDENTITY,
    "squeezed, bare": IDENTITY | BARE | {"pad_id": 3, "control_symbols": ["<2ja>"]},
    "squeezed, user": IDENTITY | BYTES | USER,
    "spaces inside": IDENTITY | KEEP | BYTES | {"split_by_whitespace": False, "split_digits": True},
    "spaces inside, user": IDENTITY | BYTES | USER | {"split_by_whitespace": False},
    "user with spaces": IDENTITY | {"user_defined_symbols": ["x▁y", "▁▁", "▁▁▁▁", "if▁"]},
}
ODD = list("  \n\t▁▁ab(=-_'\"x<>sep|.[]0719é中👍\u0301\u3000")
WORDS = ["def", "self", "<sep>", "<sep>x", "[a.b]", "aa.b", "  ", "\n", " ", "▁", "x", "▁▁▁▁", "<b>", "if"]
TEXTS = st.lists(
    st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]))
    | st.lists(st.sampled_from(WORDS)).map("".join),
    max_size=20,
)


@pytest.fixture(scope="session")
def train():
    """Trains a model on modules of the standard library; each once."""
    lines: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]:
        lines += [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    lines = random.Random(0).sample(lines, 2500) + ["<0123456789ABCDEFx> é 中文 日本語"] * 30
    made: dict[str, bytes] = {}

    def one(**options) -> bytes:
        key = repr(sorted(options.items()))
        if key not in made:
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=out,
                minloglevel=3,
                num_threads=1,
                **{"vocab_size": 700, "hard_vocab_limit": False} | options,
            )
            made[key] = out.getvalue()
        return made[key]

    return one


@pytest.fixture(scope="session")
def both(train):
    """A model by sentencepiece and by its conversion; each made once."""
    made: dict[bytes, Both] = {}

    def one(**options) -> Both:
        model = train(**options)
        if model not in made:
            made[model] = Both(model)
        return made[model]

    return one


def read(model: bytes) -> Model:
    return read_model(model, "x.model")


def converted(model: bytes) -> str | None:
    return tokenizer_json(read(model))


class Both:
    """sentencepiece and the conversion, to which special tokens are text as they are to sentencepiece."""

    def __init__(self, model: bytes) -> None:
        self.own = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.body = converted(model)
        assert self.body is not None
        self.made = from_json(self.body)
        self.ignorant = HfTokenizer(Definition(self.body, special_tokens="text").engine_json)

    def ids(self, texts: list[str]) -> tuple[list[list[int]], list[list[int]]]:
        return self.own.encode(texts), self.ignorant.encode_each(texts)

    def check(self, texts: list[str]) -> None:
        for text, right, found in zip(texts, *self.ids(texts), strict=True):
            assert found == right, (text[:200], self.own.id_to_piece(right)[:50], self.own.id_to_piece(found)[:50])


@pytest.mark.parametrize("name", BPE)
def test_bpe_gives_the_same_ids(both, real_texts, name):
    pair = both(model_type="bpe", **BPE[name])
    pair.check(suite_texts(Definition(pair.body), 20))
    pair.check(real_texts[::20])


@pytest.mark.parametrize("name", BPE)
@given(texts=TEXTS)
@settings(max_examples=40, deadline=None)
def test_bpe_gives_the_same_ids_of_any_text(both, name, texts):
    both(model_type="bpe", **BPE[name]).check(texts)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_order_of_scores_is_kept(data):
    """Pieces by chance, not by training: the merges overlap and get in each other's way."""
    letters = data.draw(st.sampled_from(["a", "ab", "abc"]))
    names = data.draw(st.lists(st.text(letters, min_size=2, max_size=5), unique=True, max_size=12))
    pieces = [("<unk>", 0, UNKNOWN), *((name, -i, NORMAL) for i, name in enumerate(names))]
    pieces += [(letter, -100, NORMAL) for letter in letters]
    Both(handmade(pieces)).check(data.draw(st.lists(st.text(letters, max_size=30), max_size=20)))


@pytest.mark.parametrize("lengths", [range(2, 17), (2, 3, 4, 8, 16), (2, 3, 5, 7, 11), (4, 2, 8, 3, 6)])
def test_runs_of_one_score_grow_from_the_left(lengths):
    pieces = [("<unk>", 0, UNKNOWN), ("▁", -9, NORMAL), ("a", -10, NORMAL), ("▁a", -1, NORMAL)]
    pair = Both(handmade([*pieces, *(("▁" * length, -9, NORMAL) for length in lengths)]))
    pair.check([text for n in range(80) for text in (" " * n, f"a{' ' * n}a", f"a{' ' * n}a{' ' * (n // 2)}")])


def test_the_form_of_llama(train):
    """The one that fast engines know."""
    body = json.loads(converted(train(model_type="bpe", **BPE["like llama"])))
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    assert body["normalizer"] == {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}
    assert body["pre_tokenizer"] is None
    assert [(token["id"], token["content"], token["special"]) for token in body["added_tokens"]] == [
        (0, "<unk>", True),
        (1, "<s>", True),
        (2, "</s>", True),
    ]
    model = body["model"]
    assert (model["type"], model["unk_token"], model["fuse_unk"], model["byte_fallback"]) == (
        "BPE",
        "<unk>",
        True,
        True,
    )


@pytest.mark.parametrize("name", ["like llama", "like gemma", "only runs"])
def test_a_fast_engine_gives_the_same_ids(both, real_texts, name):
    import gigatoken

    pair = both(model_type="bpe", **BPE[name] | BYTES)
    fast = gigatoken.Tokenizer.from_json(pair.body)
    texts = [
        text for text in suite_texts(Definition(pair.body), 50) if not any(s in text for s in ("<s>", "</s>", "<unk>"))
    ]
    for text in [*texts, *real_texts[::25]]:
        assert list(fast.encode(text)) == pair.own.encode(text), text[:200]


def test_special_tokens_are_parsed_between_parts_that_stand_alone(train):
    pair = Both(train(model_type="bpe", **BPE["like llama"]))
    found = pair.made.encode("ab <s>cd</s></s>", add_special_tokens=False).ids
    assert found == [*pair.own.encode("ab "), 1, *pair.own.encode("cd"), 2, 2]


def test_it_decodes_alike(both, real_texts):
    pair = both(model_type="bpe", **BPE["like llama"])
    for text in real_texts[::40]:
        ids = [i for i in pair.own.encode(text) if i]  # the unknown has no text of its own
        assert pair.made.decode(ids) == pair.own.decode(ids)


def test_unused_pieces_are_refused():
    """sentencepiece merges through them and takes them apart again."""
    letters = [(letter, -5 - i, NORMAL) for i, letter in enumerate("▁ab")]
    assert converted(handmade([("<unk>", 0, UNKNOWN), *letters, ("ab", -1, NORMAL)])) is not None
    assert converted(handmade([("<unk>", 0, UNKNOWN), *letters, ("ab", -1, UNUSED)])) is None


def test_user_defined_pieces_win_at_any_score():
    letters = [(letter, -1, NORMAL) for letter in "▁abcd"]
    pieces = [("<unk>", 0, UNKNOWN), *letters, ("abc", -50, USER_DEFINED), ("ab", -0.5, NORMAL), ("cd", -0.5, NORMAL)]
    pair = Both(handmade([(name, score - i / 8, of) for i, (name, score, of) in enumerate(pieces)]))
    pair.check(["abc", "abcd", "aabcd", "ab cd abc d"])


def test_words_are_looked_up_whole_only_if_merging_makes_them():
    """User-defined pieces after a prefix are found that way, and with them whatever stands between two of them."""
    letters = [(letter, -9 - i, NORMAL) for i, letter in enumerate("▁abcd")]
    pieces = [("<unk>", 0, UNKNOWN), *letters, ("#", 0, USER_DEFINED), ("ab", -2, NORMAL), ("cd", -3, NORMAL)]
    Both(handmade([*pieces, ("abcd", -4, NORMAL)], prefix=True)).check(["#abcd#", "abcd", "#", "a#b", "ab#cd##"])
    assert converted(handmade([*pieces, ("abcd", -4, NORMAL), ("bc", -1, NORMAL)], prefix=True)) is None


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "word"},
        {"model_type": "char"},
        {"model_type": "unigram", **IDENTITY},  # its ties are broken otherwise
        {"model_type": "bpe"},  # nmt_nfkc: a character map
        {"model_type": "bpe", "treat_whitespace_as_suffix": True, **IDENTITY},
        {"model_type": "bpe", "user_defined_symbols": ["a b"], **IDENTITY},
    ],
)
def test_what_has_no_form_is_refused(train, options):
    assert converted(train(**options)) is None


@pytest.mark.parametrize(
    "pieces",
    [
        [("ab", -1, 1), ("bc", -1, 1)],  # in "abc" the left one goes first: pairs have no such rank
        [("ab", -1, 1), ("#", 0, 3)],  # a character that stands for control
        [("ab", -1, 1), ("bc", float("nan"), 1)],
    ],
)
def test_pieces_that_cannot_be_ranked_are_refused(pieces):
    letters = [(letter, -9 - i, NORMAL) for i, letter in enumerate("▁abc")]
    assert converted(handmade([("<unk>", 0, UNKNOWN), *letters, *pieces])) is None


def test_special_names(train):
    assert read(train(model_type="bpe", **BPE["like llama"])).special_names == {"bos": "<s>", "eos": "</s>"}
    own = {"bos_id": -1, "eos_piece": "<end>", "vocab_size": 300}
    assert read(train(model_type="unigram", **own)).special_names == {"eos": "<end>"}
    assert read(train(model_type="word", bos_id=-1, eos_id=-1, vocab_size=300)).special_names == {}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty"),
        (b"Hello, this is text.\n", "SentencePiece model"),
        (b'{"model": {"type": "BPE"}}', "SentencePiece model"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "SentencePiece model"),
        (b"\x12\x02\x18\x02\x1a\x02\x18\x00", "no pieces"),
        (b"\x0a\x03\x0a\x01a\x12\x02\x18\x02\x1a\x02\x18\x00", "unknown"),
        (b"\x0a\x05\x0a\x01\xff\x18\x02\x12\x02\x18\x02\x1a\x02\x18\x00", "utf-8"),
    ],
)
def test_other_files_are_named_for_what_they_are(data, problem):
    with pytest.raises(TokenizerError, match=rf"x\.model: .*{problem}"):
        read(data)


def test_another_protobuf_is_no_model(train):
    own = sentencepiece.SentencePieceProcessor(model_proto=train(model_type="bpe", **BPE["like llama"]))
    with pytest.raises(TokenizerError, match="not a"):
        read(own.encode("Hello world", out_type="serialized_proto"))


def test_a_file_cut_short_is_no_model(train):
    """Wherever it is cut: everywhere in a small one, and within a piece, between pieces and near the ends of a real one."""
    letters = [(letter, -5 - i, NORMAL) for i, letter in enumerate("▁ab")]
    small = handmade([("<unk>", 0, UNKNOWN), *letters, ("ab", -1, NORMAL)])
    for size in range(len(small)):
        with pytest.raises(TokenizerError):
            read(small[:size])
    whole = train(model_type="bpe", vocab_size=300, **IDENTITY)
    for size in (*range(100), *range(100, len(whole) - 100, 17), *range(len(whole) - 100, len(whole))):
        with pytest.raises(TokenizerError):
            read(whole[:size])


@given(st.binary())
def test_bytes_by_chance_are_no_model(data):
    with pytest.raises(TokenizerError):
        read(data)


NORMAL, UNKNOWN, USER_DEFINED, UNUSED = 1, 2, 4, 5
BPE_KIND = 2


def handmade(pieces: list[tuple[str, float, int]], kind: int = BPE_KIND, prefix: bool = False) -> bytes:
    """A model file of these (piece, score, type). It keeps all spaces."""

    def part(number: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    body = b""
    for name, score, of in pieces:
        body += part(1, part(1, name.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, of]))
    return body + part(2, bytes([0x18, kind])) + part(3, bytes([0x18, prefix, 0x20, 0]))
