"""Ids back to bytes: the text's own, whole or in ranges, and never a guess about an id that no token has."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tokenmill.demo_data import demo_tokenizer
from tokenmill.encoding.decoder import Decoder
from tokenmill.errors import TokenizerError, UsageError

PROSE = [
    "The mill stands by the river, and the river turns the wheel of the mill all day and all night.",
    "  Two spaces first;\n\ta tab, then  two  more. 3.14 and 1,000 are numbers. Don't can't won't.",
    "Die Mühle steht am Fluß; naïve café, œuvre, ¿qué? Москва и река. 中文字符 日本語 한국어",
    "def grind(grain):\n    return [flour for flour in grain if flour]\n",
] * 3


def fresh(model: Any, trainer: Any, **parts: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(PROSE, trainer)
    return made


def changed(tokenizer: tokenizers.Tokenizer, **parts: Any) -> tokenizers.Tokenizer:
    """The same tokenizer with other parts of its JSON."""
    return tokenizers.Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | parts))


@cache
def demo() -> tokenizers.Tokenizer:
    """Byte-level BPE as the package brings it."""
    return tokenizers.Tokenizer.from_file(str(demo_tokenizer() / "tokenizer.json"))


@cache
def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE with so few tokens that most characters beyond ASCII are cut."""
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    before = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return fresh(models.BPE(), trainer, pre_tokenizer=before, decoder=decoders.ByteLevel())


@cache
def llama_like() -> tokenizers.Tokenizer:
    """As Llama 2: a mark before each text and for every space; characters it never saw become bytes."""
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)], show_progress=False
    )
    made = fresh(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        trainer,
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=pre_tokenizers.Split("▁", "merged_with_next"),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )
    added = json.loads(made.to_str())["added_tokens"]
    return changed(made, added_tokens=[token for token in added if token["content"] in special], pre_tokenizer=None)


@cache
def gemma_like() -> tokenizers.Tokenizer:
    """As Gemma: spaces are marks, nothing is put before a text."""
    config = json.loads(llama_like().to_str())
    mark, no_strip = config["normalizer"]["normalizers"][1], config["decoder"]["decoders"][:3]
    return changed(llama_like(), normalizer=mark, decoder={"type": "Sequence", "decoders": no_strip})


@cache
def unigram() -> tokenizers.Tokenizer:
    """As T5: a mark for every space and before the first word, the likeliest pieces."""
    trainer = trainers.UnigramTrainer(
        vocab_size=160, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    return fresh(models.Unigram(), trainer, pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())


@cache
def word_piece() -> tokenizers.Tokenizer:
    """As BERT."""
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    return fresh(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )


@cache
def metaspace_by_hand() -> tokenizers.Tokenizer:
    """A vocabulary small enough to say which tokens a text has."""
    vocab = {token: i for i, token in enumerate(["<unk>", "</s>", "▁", "a", "b", "▁a", "▁b", "▁▁", "▁▁a"])}
    merges = [("▁", "▁"), ("▁", "a"), ("▁", "b"), ("▁▁", "a")]
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["</s>"])
    return made


EXACT = [demo, byte_level, llama_like, gemma_like, unigram]
REVERSIBLE = [demo, byte_level, llama_like, gemma_like]
# Text that no normalizer here changes and that spells no special token.
plain_text = st.text(st.characters(codec="utf-8", exclude_characters="▁<"))


@cache
def decoder_of(tokenizer: Any) -> Decoder:
    return Decoder(tokenizer().to_str())


def encode(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def reference_text(tokenizer: tokenizers.Tokenizer, ids: Iterable[int]) -> str:
    return str(tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))


def ids_of(tokenizer: tokenizers.Tokenizer) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=30)


@pytest.mark.parametrize("make", REVERSIBLE)
@given(text=plain_text)
@example("  starts with spaces")
@example(" ")
@example("\n")
@example("👍🏽 e\u0301 \u200d\ufffd\x00")
@example("".join(PROSE))
def test_encode_then_decode_is_the_identity_in_bytes(make, text):
    ids = encode(make(), text)
    assert decoder_of(make).bytes(ids) == text.encode()
    assert decoder_of(make).text(ids) == text == reference_text(make(), ids)


@pytest.mark.parametrize("make", EXACT)
@given(data=st.data())
def test_ranges_concatenate_to_the_whole(make, data):
    decoder = decoder_of(make)
    text = data.draw(plain_text)
    ids = data.draw(st.one_of(st.just(encode(make(), text)), ids_of(make())))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    ranges = zip([0, *cuts], [*cuts, None], strict=True)
    assert b"".join(decoder.bytes(ids, start, stop) for start, stop in ranges) == decoder.bytes(ids)


@pytest.mark.parametrize("make", [demo, byte_level])
@given(data=st.data())
def test_byte_level_text_is_that_of_tokenizers_for_any_ids(make, data):
    ids = data.draw(ids_of(make()))
    assert decoder_of(make).text(ids) == reference_text(make(), ids)


@pytest.mark.parametrize("make", [llama_like, gemma_like])
@given(data=st.data())
def test_llama_like_text_is_that_of_tokenizers_for_any_ids_but_bytes(make, data):
    spelled = {number for token, number in make().get_vocab().items() if token.startswith("<0x")}
    ids = [number for number in data.draw(ids_of(make())) if number not in spelled]
    assert decoder_of(make).text(ids) == reference_text(make(), ids)


@pytest.mark.parametrize("text", ["The mill stands by the river.", "a tab, then two more numbers", "flour"])
def test_unigram_text_is_that_of_tokenizers(text):
    ids = encode(unigram(), text)
    assert decoder_of(unigram).exact
    assert decoder_of(unigram).bytes(ids) == text.encode()
    assert reference_text(unigram(), ids) == text


@pytest.mark.parametrize("make", [demo, byte_level, llama_like])
def test_an_emoji_cut_in_half(make):
    text = "ok 👍"
    ids = encode(make(), text)
    decoder = decoder_of(make)
    parts = [decoder.bytes(ids, i, i + 1) for i in range(len(ids))]
    assert b"".join(parts) == text.encode()
    inside = len(ids) - 1
    assert "👍".encode()[1:].endswith(parts[inside])
    assert decoder.text(ids, 0, inside) == "ok \ufffd"
    assert set(decoder.text(ids, inside)) == {"\ufffd"}


def test_ranges_longer_than_one_gather():
    """Ids enough for several gathers, held against a loop over tokens."""
    decoder = decoder_of(llama_like)
    size = llama_like().get_vocab_size()
    single = [decoder.bytes([0, number], 1) for number in range(size)]
    ids = np.random.default_rng(7).integers(0, size, 200_000)
    ids[0] = llama_like().token_to_id("e")
    expected = b"".join(single[number] for number in ids.tolist())
    assert decoder.bytes(ids) == expected
    assert decoder.bytes(ids, 1, 150_001) == b"".join(single[number] for number in ids[1:150_001].tolist())
    marked = llama_like().token_to_id("▁the")
    everywhere = np.full(200_000, marked)
    assert decoder.bytes(everywhere) == b"the" + b" the" * 199_999


# What stands before a document's first word.


def test_the_space_before_the_first_word_goes_only_at_the_start_of_the_document():
    decoder = decoder_of(llama_like)
    ids = encode(llama_like(), "the the the")
    assert llama_like().id_to_token(ids[0]) == "▁the"
    assert decoder.bytes(ids, 0, 1) == b"the"
    assert decoder.bytes(ids, 1, 2) == b" the"
    assert decoder.bytes(ids, -len(ids)) == b"the the the"
    assert decoder.bytes(ids, 0, 0) == b""


@pytest.mark.parametrize("text", [" the", "  the", "    the", " ", "   ", "\n the", " \n"])
def test_spaces_that_the_document_starts_with_are_kept(text):
    for make in (llama_like, gemma_like):
        assert decoder_of(make).bytes(encode(make(), text)) == text.encode()


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_metaspace_takes_away_one_space_where_tokenizers_takes_all_of_the_first_token(scheme):
    parts = {
        kind: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        for kind in ("pre_tokenizer", "decoder")
    }
    made = changed(metaspace_by_hand(), **parts)
    ids = encode(made, "   a b")
    assert [made.id_to_token(number) for number in ids] == ["▁▁", "▁a", "▁b"]
    # One of the three spaces is lost in encoding: Metaspace puts no mark before a text that starts with one.
    assert Decoder(made.to_str()).text(ids) == "  a b"
    assert reference_text(made, ids) == " a b"


def test_metaspace_that_puts_nothing_before_the_text_takes_nothing_away():
    parts = {
        kind: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
        for kind in ("pre_tokenizer", "decoder")
    }
    made = changed(metaspace_by_hand(), **parts)
    for text in ("a b", " a b", "   a"):
        assert Decoder(made.to_str()).bytes(encode(made, text)) == text.encode()


def test_files_older_than_prepend_schemes():
    config = json.loads(metaspace_by_hand().to_str())
    for put, expected in ((True, b"a b"), (False, b" a b")):
        old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": put}
        decoder = Decoder(json.dumps(config | {"pre_tokenizer": old, "decoder": old}))
        assert decoder.bytes([5, 6]) == expected


def test_another_mark_than_the_usual():
    parts = {
        kind: {"type": "Metaspace", "replacement": "~", "prepend_scheme": "always", "split": True}
        for kind in ("pre_tokenizer", "decoder")
    }
    vocab = {"~": 0, "~a": 1, "▁": 2}
    made = changed(tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[])), **parts)
    assert Decoder(made.to_str()).text([1, 1, 0, 2]) == "a a ▁"


# Added tokens.


def test_special_tokens_contribute_their_content():
    ids = encode(byte_level(), "one<|end|>two<|end|>")
    decoder = decoder_of(byte_level)
    assert decoder.text(ids) == "one<|end|>two<|end|>" == reference_text(byte_level(), ids)
    assert decoder.bytes(ids, -1) == b"<|end|>"


def test_the_space_behind_a_special_token_stays_as_in_tokenizers():
    decoder = decoder_of(llama_like)
    begin, end = (llama_like().token_to_id(name) for name in ("<s>", "</s>"))
    document = [begin, *encode(llama_like(), "the mill"), end]
    assert decoder.text(document) == "<s> the mill</s>" == reference_text(llama_like(), document)
    assert decoder.bytes(document, 1, -1) == b" the mill"
    middle = encode(llama_like(), "the</s>the")
    assert decoder.text(middle) == "the</s> the" == reference_text(llama_like(), middle)
    # Metaspace with "first" puts no mark behind a special token, and so the text comes back.
    first = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    made = changed(metaspace_by_hand(), pre_tokenizer=first, decoder=first)
    for text in ("a</s>b", "a</s> b", "</s>a"):
        assert Decoder(made.to_str()).text(encode(made, text)) == text


def test_added_tokens_outside_ascii_are_themselves_where_tokenizers_reads_them_as_bytes():
    made = changed(byte_level())
    made.add_special_tokens(["<é>", "<Ġ>", "<中>"])
    made.add_tokens(["naïveté "])
    text = "a<é>b<Ġ>c<中>dnaïveté e"
    ids = encode(made, text)
    assert Decoder(made.to_str()).text(ids) == text
    assert reference_text(made, ids) == "a<\ufffd>b< >c<中>dnaïveté e"


def test_added_tokens_keep_their_marks_and_leading_spaces():
    made = changed(llama_like())
    in_the_model = "▁the"
    size = made.get_vocab_size()
    made.add_special_tokens(["<a▁b>", " x", in_the_model])
    assert made.token_to_id(in_the_model) < size <= made.token_to_id("<a▁b>")
    decoder = Decoder(made.to_str())
    for content in ("<a▁b>", " x", in_the_model):
        assert decoder.text([made.token_to_id(content)] * 2) == content * 2


def test_added_tokens_that_the_model_makes_itself_read_as_the_models():
    """Gemma lists runs of marks as added tokens, under the ids that its model gives runs of spaces."""
    made = changed(metaspace_by_hand(), pre_tokenizer=None, normalizer=json.loads(gemma_like().to_str())["normalizer"])
    made.add_tokens([tokenizers.AddedToken("▁▁", normalized=False)])
    ids = encode(made, "a  b")
    assert [made.id_to_token(number) for number in ids] == ["a", "▁▁", "b"]
    assert ids[1] in made.get_added_tokens_decoder()
    assert Decoder(made.to_str()).bytes(ids) == b"a  b"


def test_byte_tokens_are_bytes_also_where_they_are_listed_as_special():
    made = changed(llama_like())
    made.add_special_tokens([f"<0x{byte:02X}>" for byte in range(256)])
    ids = encode(made, "a👍\t")
    decoder = Decoder(made.to_str())
    assert decoder.bytes(ids) == "a👍\t".encode()
    assert decoder.bytes([made.token_to_id("<s>"), made.token_to_id("<0xFF>")], 1) == b"\xff"


def test_without_byte_fallback_a_token_that_looks_like_a_byte_is_text():
    vocab = {"▁a": 0, "<0x41>": 1}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    assert Decoder(made.to_str()).text([0, 1]) == "a<0x41>" == reference_text(made, [0, 1])


def test_bytes_that_are_no_character_become_one_replacement_where_tokenizers_gives_one_for_each():
    ids = [llama_like().token_to_id(name) for name in ("a", "<0xF0>", "<0x9F>", "b")]
    decoder = decoder_of(llama_like)
    assert decoder.bytes(ids) == b"a\xf0\x9fb"
    assert decoder.text(ids) == "a\ufffdb"
    assert reference_text(llama_like(), ids) == "a\ufffd\ufffdb"


# Which tokenizers have an exact answer.


@pytest.mark.parametrize("make", EXACT)
def test_families_that_are_exact(make):
    assert decoder_of(make).exact is True


@pytest.mark.parametrize("make", [byte_level, llama_like, unigram])
def test_without_a_decoder_what_stands_before_the_model_decides(make):
    """There, `tokenizers` joins the bare tokens with spaces."""
    text = "the river turns the wheel"
    ids = encode(make(), text)
    bare = changed(make(), decoder=None)
    assert Decoder(bare.to_str()).exact
    assert Decoder(bare.to_str()).text(ids) == text != reference_text(bare, ids)


def test_the_space_that_byte_level_tokenizers_may_add_is_kept_as_in_tokenizers():
    """It cannot be told from a space of the text's own."""
    made = changed(byte_level())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    decoder = Decoder(made.to_str())
    assert encode(made, "the") == encode(made, " the")
    assert decoder.text(encode(made, "the")) == " the" == reference_text(made, encode(made, "the"))


def test_byte_level_tokens_outside_the_alphabet_stand_for_themselves():
    vocab = {"Ġa": 0, "é b": 1, "Ã©": 2, "中": 3}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    assert Decoder(made.to_str()).text([0, 1, 2, 3]) == " aé bé中" == reference_text(made, [0, 1, 2, 3])


def test_word_piece_is_not_exact_and_gives_the_text_of_tokenizers():
    decoder = decoder_of(word_piece)
    ids = encode(word_piece(), "the millwheel turns, naïve")
    assert decoder.exact is False
    assert decoder.text(ids) == reference_text(word_piece(), ids)
    assert decoder.bytes(ids) == reference_text(word_piece(), ids).encode()
    assert decoder.bytes(np.array(ids, np.uint16), 1, -1) == reference_text(word_piece(), ids[1:-1]).encode()
    assert decoder.bytes(ids, 2, 2) == b""


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.BPEDecoder(),
        decoders.CTC(),
        decoders.Fuse(),
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([decoders.Replace("▁", "_"), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace(tokenizers.Regex("▁+"), " "), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.ByteFallback()]),
    ],
)
def test_decoders_that_do_more_are_not_exact(decoder):
    made = changed(llama_like())
    made.decoder = decoder
    ids = encode(made, "  the mill\nstands ")
    assert Decoder(made.to_str()).exact is False
    assert Decoder(made.to_str()).text(ids) == reference_text(made, ids)


@pytest.mark.parametrize("sign", ["end_of_word_suffix", "continuing_subword_prefix"])
def test_tokens_that_say_where_words_begin_or_end_are_not_exact(sign):
    made = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "a##": 1, "##a": 2}, merges=[], **{sign: "##"}))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    assert Decoder(made.to_str()).exact is False


def test_word_level_without_a_decoder_is_not_exact():
    made = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    assert Decoder(made.to_str()).exact is False
    assert Decoder(made.to_str()).bytes([0, 1, 0]) == b"a b a"


# Ids in every form, and ids that are none.


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int32, np.int64, np.uint64, ">u4", object])
def test_arrays_of_any_integer_type(dtype):
    ids = encode(demo(), PROSE[2])
    assert decoder_of(demo).text(np.array(ids, dtype)) == PROSE[2]


def test_memory_mapped_and_strided_ids(tmp_path):
    ids = encode(demo(), PROSE[0])
    np.array(ids, np.uint16).tofile(tmp_path / "ids")
    mapped = np.memmap(tmp_path / "ids", np.uint16, "r")
    assert decoder_of(demo).text(mapped) == PROSE[0]
    assert decoder_of(demo).text(tuple(ids)) == PROSE[0]
    assert decoder_of(demo).bytes(mapped[::-1], 1, 4) == decoder_of(demo).bytes(ids[::-1], 1, 4)


@pytest.mark.parametrize("make", [*EXACT, word_piece])
@pytest.mark.parametrize("ids", [[], (), np.empty(0, np.uint16), np.empty(0)])
def test_no_ids_are_no_bytes(make, ids):
    assert decoder_of(make).bytes(ids) == b""
    assert decoder_of(make).text(ids) == ""


@given(start=st.integers(-12, 12), stop=st.none() | st.integers(-12, 12))
def test_ranges_follow_slicing(start, stop):
    ids = list(range(70, 80))
    decoder = decoder_of(demo)
    assert decoder.bytes(ids, start, stop) == decoder.bytes(ids[start:stop])
    assert decoder.bytes(np.array(ids), start, stop) == decoder.bytes(ids[start:stop])


@pytest.mark.parametrize("make", [demo, llama_like, unigram, word_piece])
@pytest.mark.parametrize("bad", [-1, -(2**40), "size", 2**31, 2**63, 2**64 + 1])
@pytest.mark.parametrize("before", [0, 3, 70_000])
def test_ids_outside_the_vocabulary_are_named(make, bad, before):
    size = make().get_vocab_size()
    bad = size if bad == "size" else bad
    ids = [2] * before + [bad, 2, bad, -5]
    pattern = rf"ids\[{before}\] is {bad}, outside the vocabulary of {size};"
    with pytest.raises(UsageError, match=pattern):
        decoder_of(make).bytes(ids)
    with pytest.raises(UsageError, match=pattern):
        decoder_of(make).text(ids, min(before, 2))
    assert decoder_of(make).bytes(ids, 0, before) == decoder_of(make).bytes([2] * before)
    if abs(bad) < 2**62:
        with pytest.raises(UsageError, match=pattern):
            decoder_of(make).bytes(np.array(ids), -(4 + min(before, 3)))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_unsigned_ids_outside_the_vocabulary_are_named(dtype):
    largest = np.iinfo(dtype).max
    with pytest.raises(UsageError, match=rf"ids\[1\] is {largest}, outside the vocabulary of "):
        decoder_of(demo).bytes(np.array([1, largest], dtype))


@pytest.mark.parametrize("decoder", [decoders.ByteLevel(), decoders.WordPiece()])
def test_ids_that_no_token_has_are_named(decoder):
    made = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 2, "c": 5}, merges=[]))
    made.decoder = decoder
    hollow = Decoder(made.to_str())
    assert hollow.text([5, 0], 1) == "a"
    with pytest.raises(UsageError, match=r"ids\[3\] is 4, an id that no token of this vocabulary of 6 has"):
        hollow.bytes([0, 2, 5, 4, 1])
    with pytest.raises(UsageError, match=r"ids\[4\] is 1, an id that no token"):
        hollow.text(np.array([0, 2, 5, 4, 1], np.uint16), 4)
    with pytest.raises(UsageError, match=r"ids\[0\] is 6, outside the vocabulary of 6"):
        hollow.text([6])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2.5], r"ids\[1\] is 2\.5"),
        (np.array([1.0, 2.0]), "must be integers"),
        ([1, "a"], r"ids\[1\] is 'a'"),
        ([True, False], r"ids\[0\] is True"),
        ([None], r"ids\[0\] is None"),
        ("12", "flat"),
        ([[1, 2], [3, 4]], "2 dimensions"),
        ([[1, 2], [3]], "one by one"),
        (np.zeros((2, 2), np.uint16), "2 dimensions"),
    ],
)
def test_what_is_not_a_list_of_ids_is_refused(ids, message):
    with pytest.raises(UsageError, match=message):
        decoder_of(demo).bytes(ids)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {}}', '{"model": {"vocab": [1, 2]}}', "null"])
def test_what_is_not_a_tokenizer_is_refused(text):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Decoder(text).bytes([1])
