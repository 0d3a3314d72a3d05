"""Ids back to bytes: the text's own, whole or in ranges, and never a guess about an id that no token has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_kinds import PROSE, WITH_DECODERS
from written_tokenizers import (
    Written,
    bpe,
    decoders,
    metaspace,
    replace,
    strip,
    word_level,
)
from written_tokenizers import byte_level as byte_level_part

from tokenmill.demo_data import demo_tokenizer
from tokenmill.encoding.decoder import Decoder
from tokenmill.encoding.hf_tokenizers import has_parts
from tokenmill.encoding.tokenizer_json import byte_alphabet
from tokenmill.errors import TokenizerError, UsageError

BYTE_LEVEL, METASPACE, FUSE = byte_level_part(add_prefix_space=False), metaspace(), {"type": "Fuse"}


@cache
def demo() -> Written:
    """Byte-level BPE as the package brings it."""
    return Written.read(demo_tokenizer() / "tokenizer.json")


@cache
def byte_level() -> Written:
    """Byte-level BPE with so few tokens that most characters beyond ASCII are cut."""
    return Written.read(WITH_DECODERS["byte_level"])


@cache
def llama_like() -> Written:
    """As Llama 2: a mark before each text and for every space; characters it never saw become bytes."""
    return Written.read(WITH_DECODERS["sentence_piece"])


@cache
def gemma_like() -> Written:
    """As Gemma: spaces are marks, nothing is put before a text."""
    config = llama_like().body
    mark, no_strip = config["normalizer"]["normalizers"][1], config["decoder"]["decoders"][:3]
    return llama_like().changed(normalizer=mark, decoder=decoders(*no_strip))


@cache
def unigram() -> Written:
    """As T5: a mark for every space and before the first word, the likeliest pieces."""
    return Written.read(WITH_DECODERS["unigram"])


@cache
def word_piece() -> Written:
    """As BERT."""
    return Written.read(WITH_DECODERS["word_piece"])


@cache
def metaspace_by_hand() -> Written:
    """A vocabulary small enough to say which tokens a text has."""
    vocab = {token: i for i, token in enumerate(["<unk>", "</s>", "▁", "a", "b", "▁a", "▁b", "▁▁", "▁▁a"])}
    merges = [("▁", "▁"), ("▁", "a"), ("▁", "b"), ("▁▁", "a")]
    model = bpe(vocab, merges, unk_token="<unk>")
    made = Written({"model": model, "pre_tokenizer": metaspace(split=False), "decoder": METASPACE})
    return made.with_tokens("</s>")


EXACT = [demo, byte_level, llama_like, gemma_like, unigram]
REVERSIBLE = [demo, byte_level, llama_like, gemma_like]
# Text that no normalizer here changes and that spells no special token.
plain_text = st.text(st.characters(codec="utf-8", exclude_characters="▁<"))


@cache
def decoder_of(make: Callable[[], Written]) -> Decoder:
    return Decoder(make().to_str())


def ids_of(made: Written) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(made.vocabulary) - 1), max_size=30)


@pytest.mark.parametrize("make", REVERSIBLE)
@given(text=plain_text)
@example("  starts with spaces")
@example(" ")
@example("\n")
@example("👍🏽 e\u0301 \u200d\ufffd\x00")
@example("".join(PROSE))
def test_encode_then_decode_is_the_identity_in_bytes(make, text):
    ids = make().encode(text)
    assert decoder_of(make).bytes(ids) == text.encode()
    assert decoder_of(make).text(ids) == text == make().decode(ids)


@pytest.mark.parametrize("make", EXACT)
@given(data=st.data())
def test_ranges_concatenate_to_the_whole(make, data):
    decoder = decoder_of(make)
    text = data.draw(plain_text)
    ids = data.draw(st.one_of(st.just(make().encode(text)), ids_of(make())))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    ranges = zip([0, *cuts], [*cuts, None], strict=True)
    assert b"".join(decoder.bytes(ids, start, stop) for start, stop in ranges) == decoder.bytes(ids)


@pytest.mark.parametrize("make", [demo, byte_level])
@given(data=st.data())
def test_byte_level_text_is_that_of_tokenizers_for_any_ids(make, data):
    ids = data.draw(ids_of(make()))
    assert decoder_of(make).text(ids) == make().decode(ids)


@pytest.mark.parametrize("make", [llama_like, gemma_like])
@given(data=st.data())
def test_llama_like_text_is_that_of_tokenizers_for_any_ids_but_bytes(make, data):
    spelled = {number for token, number in make().vocabulary.items() if token.startswith("<0x")}
    ids = [number for number in data.draw(ids_of(make())) if number not in spelled]
    assert decoder_of(make).text(ids) == make().decode(ids)


@pytest.mark.parametrize("text", ["The mill stands by the river.", "a tab, then two more numbers", "flour"])
def test_unigram_text_is_that_of_tokenizers(text):
    ids = unigram().encode(text)
    assert decoder_of(unigram).exact
    assert decoder_of(unigram).bytes(ids) == text.encode()
    assert unigram().decode(ids) == text


@pytest.mark.parametrize("make", [demo, byte_level, llama_like])
def test_an_emoji_cut_in_half(make):
    text = "ok 👍"
    ids = make().encode(text)
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
    size = len(llama_like().vocabulary)
    single = [decoder.bytes([0, number], 1) for number in range(size)]
    ids = np.random.default_rng(7).integers(0, size, 200_000)
    ids[0] = llama_like().vocabulary["e"]
    expected = b"".join(single[number] for number in ids.tolist())
    assert decoder.bytes(ids) == expected
    assert decoder.bytes(ids, 1, 150_001) == b"".join(single[number] for number in ids[1:150_001].tolist())
    marked = llama_like().vocabulary["▁the"]
    everywhere = np.full(200_000, marked)
    assert decoder.bytes(everywhere) == b"the" + b" the" * 199_999


# What stands before a document's first word.


def test_the_space_before_the_first_word_goes_only_at_the_start_of_the_document():
    decoder = decoder_of(llama_like)
    ids = llama_like().encode("the the the")
    assert llama_like().tokens(ids[:1]) == ["▁the"]
    assert decoder.bytes(ids, 0, 1) == b"the"
    assert decoder.bytes(ids, 1, 2) == b" the"
    assert decoder.bytes(ids, -len(ids)) == b"the the the"
    assert decoder.bytes(ids, 0, 0) == b""


@pytest.mark.parametrize("text", [" the", "  the", "    the", " ", "   ", "\n the", " \n"])
def test_spaces_that_the_document_starts_with_are_kept(text):
    for make in (llama_like, gemma_like):
        assert decoder_of(make).bytes(make().encode(text)) == text.encode()


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_metaspace_takes_away_one_space_where_tokenizers_takes_all_of_the_first_token(scheme):
    part = metaspace(scheme, split=False)
    made = metaspace_by_hand().changed(pre_tokenizer=part, decoder=part)
    ids = made.encode("   a b")
    assert made.tokens(ids) == ["▁▁", "▁a", "▁b"]
    # One of the three spaces is lost in encoding: Metaspace puts no mark before a text that starts with one.
    assert Decoder(made.to_str()).text(ids) == "  a b"
    assert made.decode(ids) == " a b"


def test_metaspace_that_puts_nothing_before_the_text_takes_nothing_away():
    part = metaspace("never", split=False)
    made = metaspace_by_hand().changed(pre_tokenizer=part, decoder=part)
    for text in ("a b", " a b", "   a"):
        assert Decoder(made.to_str()).bytes(made.encode(text)) == text.encode()


def test_files_older_than_prepend_schemes():
    for put, expected in ((True, b"a b"), (False, b" a b")):
        old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": put}
        decoder = Decoder(metaspace_by_hand().changed(pre_tokenizer=old, decoder=old).to_str())
        assert decoder.bytes([5, 6]) == expected


def test_another_mark_than_the_usual():
    part = metaspace(replacement="~")
    made = Written({"model": bpe({"~": 0, "~a": 1, "▁": 2}), "pre_tokenizer": part, "decoder": part})
    assert Decoder(made.to_str()).text([1, 1, 0, 2]) == "a a ▁"


# Added tokens.


def test_special_tokens_contribute_their_content():
    ids = byte_level().encode("one<|end|>two<|end|>")
    decoder = decoder_of(byte_level)
    assert decoder.text(ids) == "one<|end|>two<|end|>" == byte_level().decode(ids)
    assert decoder.bytes(ids, -1) == b"<|end|>"


def test_the_space_behind_a_special_token_stays_as_in_tokenizers():
    decoder = decoder_of(llama_like)
    begin, end = (llama_like().vocabulary[name] for name in ("<s>", "</s>"))
    document = [begin, *llama_like().encode("the mill"), end]
    assert decoder.text(document) == "<s> the mill</s>" == llama_like().decode(document)
    assert decoder.bytes(document, 1, -1) == b" the mill"
    middle = llama_like().encode("the</s>the")
    assert decoder.text(middle) == "the</s> the" == llama_like().decode(middle)
    # Metaspace with "first" puts no mark behind a special token, and so the text comes back.
    first = metaspace("first", split=False)
    made = metaspace_by_hand().changed(pre_tokenizer=first, decoder=first)
    for text in ("a</s>b", "a</s> b", "</s>a"):
        assert Decoder(made.to_str()).text(made.encode(text)) == text


def test_added_tokens_outside_ascii_are_themselves_where_tokenizers_0_x_reads_them_as_bytes():
    made = byte_level().with_tokens("<é>", "<Ġ>", "<中>").with_tokens("naïveté ", special=False)
    text = "a<é>b<Ġ>c<中>dnaïveté e"
    ids = made.encode(text)
    assert Decoder(made.to_str()).text(ids) == text
    assert made.decode(ids) == ("a<\ufffd>b< >c<中>dnaïveté e" if has_parts() else text)


def test_added_tokens_keep_their_marks_and_leading_spaces():
    in_the_model = "▁the"
    size = len(llama_like().vocabulary)
    made = llama_like().with_tokens("<a▁b>", " x", in_the_model)
    assert made.vocabulary[in_the_model] < size <= made.vocabulary["<a▁b>"]
    decoder = Decoder(made.to_str())
    for content in ("<a▁b>", " x", in_the_model):
        assert decoder.text([made.vocabulary[content]] * 2) == content * 2


def test_added_tokens_that_the_model_makes_itself_read_as_the_models():
    """Gemma lists runs of marks as added tokens, under the ids that its model gives runs of spaces."""
    made = metaspace_by_hand().changed(pre_tokenizer=None, normalizer=gemma_like().body["normalizer"])
    made = made.with_tokens({"content": "▁▁", "normalized": False}, special=False)
    ids = made.encode("a  b")
    assert made.tokens(ids) == ["a", "▁▁", "b"]
    assert ids[1] in [token["id"] for token in made.body["added_tokens"]]
    assert Decoder(made.to_str()).bytes(ids) == b"a  b"


def test_byte_tokens_are_bytes_also_where_they_are_listed_as_special():
    made = llama_like().with_tokens(*(f"<0x{byte:02X}>" for byte in range(256)))
    ids = made.encode("a👍\t")
    decoder = Decoder(made.to_str())
    assert decoder.bytes(ids) == "a👍\t".encode()
    assert decoder.bytes([made.vocabulary["<s>"], made.vocabulary["<0xFF>"]], 1) == b"\xff"


def test_without_byte_fallback_a_token_that_looks_like_a_byte_is_text():
    made = Written({"model": bpe({"▁a": 0, "<0x41>": 1}), "pre_tokenizer": METASPACE, "decoder": METASPACE})
    assert Decoder(made.to_str()).text([0, 1]) == "a<0x41>" == made.decode([0, 1])


def test_bytes_that_are_no_character_become_one_replacement_where_tokenizers_gives_one_for_each():
    ids = [llama_like().vocabulary[name] for name in ("a", "<0xF0>", "<0x9F>", "b")]
    decoder = decoder_of(llama_like)
    assert decoder.bytes(ids) == b"a\xf0\x9fb"
    assert decoder.text(ids) == "a\ufffdb"
    assert llama_like().decode(ids) == "a\ufffd\ufffdb"


# Which tokenizers have an exact answer.


@pytest.mark.parametrize("make", EXACT)
def test_families_that_are_exact(make):
    assert decoder_of(make).exact is True


@pytest.mark.parametrize("make", [byte_level, llama_like, unigram])
def test_without_a_decoder_what_stands_before_the_model_decides(make):
    """There, `tokenizers` joins the bare tokens with spaces; 1.0 not those of bytes."""
    text = "the river turns the wheel"
    ids = make().encode(text)
    bare = make().changed(decoder=None)
    assert Decoder(bare.to_str()).exact
    assert Decoder(bare.to_str()).text(ids) == text
    assert (bare.decode(ids) == text) == (make is byte_level and not has_parts())


def test_the_space_that_byte_level_tokenizers_may_add_is_kept_as_in_tokenizers():
    """It cannot be told from a space of the text's own."""
    made = byte_level().changed(pre_tokenizer=byte_level_part(add_prefix_space=True))
    decoder = Decoder(made.to_str())
    assert made.encode("the") == made.encode(" the")
    assert decoder.text(made.encode("the")) == " the" == made.decode(made.encode("the"))


def test_byte_level_tokens_outside_the_alphabet_stand_for_themselves():
    odd = ["Ġa", "é b", "Ã©", "中"]
    model = bpe({name: i for i, name in enumerate([*odd, *byte_alphabet()])})
    made = Written({"model": model, "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL})
    assert Decoder(made.to_str()).text([0, 1, 2, 3]) == " aé bé中"
    # 1.0 asks of each character, not of a whole token, whether it is in the alphabet.
    assert made.decode([0, 1, 2, 3]) == (" aé bé中" if has_parts() else " a\ufffd bé中")


def test_word_piece_is_not_exact_and_gives_the_text_of_tokenizers():
    decoder = decoder_of(word_piece)
    ids = word_piece().encode("the millwheel turns, naïve")
    assert decoder.exact is False
    assert decoder.text(ids) == word_piece().decode(ids)
    assert decoder.bytes(ids) == word_piece().decode(ids).encode()
    assert decoder.bytes(np.array(ids, np.uint16), 1, -1) == word_piece().decode(ids[1:-1]).encode()
    assert decoder.bytes(ids, 2, 2) == b""


@pytest.mark.parametrize(
    "decoder",
    [
        {"type": "BPEDecoder", "suffix": "</w>"},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        FUSE,
        decoders(BYTE_LEVEL, strip(1, 0)),
        decoders(replace("▁", "_"), FUSE),
        decoders(replace("▁+", " ", regex=True), FUSE),
        decoders(replace("▁", " "), strip(1, 0)),
        decoders(replace("▁", " "), FUSE, strip(0, 1)),
        decoders(replace("▁", " "), FUSE, strip(2, 0)),
        decoders(replace("▁", " "), FUSE, {"type": "ByteFallback"}),
    ],
)
def test_decoders_that_do_more_are_not_exact(decoder):
    made = llama_like().changed(decoder=decoder)
    ids = made.encode("  the mill\nstands ")
    assert Decoder(made.to_str()).exact is False
    assert Decoder(made.to_str()).text(ids) == made.decode(ids)


@pytest.mark.parametrize("sign", ["end_of_word_suffix", "continuing_subword_prefix"])
def test_tokens_that_say_where_words_begin_or_end_are_not_exact(sign):
    model = bpe({"a": 0, "a##": 1, "##a": 2}, **{sign: "##"})
    made = Written({"model": model, "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL})
    assert Decoder(made.to_str()).exact is False


def test_word_level_without_a_decoder_is_not_exact():
    made = Written({"model": word_level(["a", "b", "<unk>"], "<unk>"), "pre_tokenizer": {"type": "Whitespace"}})
    assert Decoder(made.to_str()).exact is False
    assert Decoder(made.to_str()).bytes([0, 1, 0]) == b"a b a"


# Ids in every form, and ids that are none.


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int32, np.int64, np.uint64, ">u4", object])
def test_arrays_of_any_integer_type(dtype):
    ids = demo().encode(PROSE[2])
    assert decoder_of(demo).text(np.array(ids, dtype)) == PROSE[2]


def test_memory_mapped_and_strided_ids(tmp_path):
    ids = demo().encode(PROSE[0])
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
    size = len(make().vocabulary)
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


@pytest.mark.parametrize("decoder", [BYTE_LEVEL, {"type": "WordPiece", "prefix": "##", "cleanup": True}])
def test_ids_that_no_token_has_are_named(decoder):
    made = Written({"model": bpe({"a": 0, "b": 2, "c": 5}), "decoder": decoder})
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
