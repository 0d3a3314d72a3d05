"""The library `tokenizers`, whichever of its lines is installed: the same identities, and ids that nothing in a file changes."""

from __future__ import annotations

import json
from importlib.metadata import version
from itertools import pairwise

import pyarrow as pa
import pytest
import tokenizers
from tokenizer_checks import quick_rules
from tokenizer_kinds import KINDS, NASTY
from written_tokenizers import Written

import tokenmill as tm
from tokenmill.encoding.engines.base import flatten
from tokenmill.encoding.gpu.engine import CUPY, GpuEngine
from tokenmill.encoding.hf_tokenizers import HfTokenizer, object_json, parts, rewritten
from tokenmill.errors import TokenizerError

FINGERPRINTS = {  # the same in every line, by policy for special tokens
    "byte_level": ("f2fccb866761cc6800e9717db58811e3", "956e18a1af916ebf3540bf5b88a94a5e"),
    "sentence_piece": ("4a53ed0fd886c9db00f16826556fc68d", "640b39082dcf9517a888572b2b324fc7"),
    "shipped": ("59b404ee5300e862b9bc47d3fdfb527a", "25a45a051bbc96817b3b836807749417"),
    "unigram": ("2f8ad8f1adf8abf99bdeef8c6cb67626", "4f151f6dbed17ead49bc5b26b85af124"),
    "word_piece": ("d2a257afefc8af608ecdebd8c1fd1595", "9cd8f40347aa50513ff12c964b6667b2"),
}
WRAPPED = {
    "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    "padding": {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 3, "pad_type_id": 0,
        "pad_token": "x",
    },
}  # fmt: skip
TEXTS = ["two words\n", "", "é 中", "don't <|endoftext|> stop", "x" * 3000]


@pytest.fixture(scope="module")
def bodies(kinds) -> dict[str, str]:
    return {name: path.read_text("utf-8") for name, path in kinds.items()}


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_the_fingerprint_is_the_same_in_every_line(kinds, kind):
    found = [tm.load_tokenizer(kinds[kind], special_tokens=policy).fingerprint for policy in ("parse", "text")]
    assert tuple(found) == FINGERPRINTS[kind]


def shortened(body: dict) -> None:
    """Leave out all that has a default, and spell the rest as old versions did."""
    model, step = body["model"], body["pre_tokenizer"] or {}
    for part, keys in ((model, ("dropout", "fuse_unk", "byte_fallback", "ignore_merges", "type")), (step, ("split",))):
        for key in keys:
            if not part.get(key) or key in ("type", "split"):
                part.pop(key, None)
    if step.get("prepend_scheme") == "always":
        step["add_prefix_space"] = True
        del step["prepend_scheme"]
    if step.get("use_regex"):
        del step["use_regex"]
    if "merges" in model:
        model["merges"] = ["#version: 0.2", *(f"{left} {right}" for left, right in model["merges"])]
    body["added_tokens"].reverse()


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_what_a_file_leaves_out_changes_nothing(tmp_path, bodies, kinds, kind):
    body = json.loads(bodies[kind])
    shortened(body)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(body), "utf-8")
    short, whole = tm.load_tokenizer(path), tm.load_tokenizer(kinds[kind])
    assert short.fingerprint == whole.fingerprint
    assert json.loads(short._definition.json)["model"] == json.loads(whole._definition.json)["model"]
    assert short.added == whole.added


def test_added_tokens_have_the_names_of_the_file(kinds, tmp_path):
    """1.0 tells what it looks for in a text that was normalized."""
    full = Written.read(kinds["word_piece"]).with_tokens("Mill", " X", special=False)
    tokenizer = tm.load_tokenizer(full.save(tmp_path / "tokenizer.json"), "reference")
    assert tokenizer.fingerprint == "19e519ee6560beda85e9607a0ba134e4"  # the same in every line
    assert tokenizer.added == {token["content"]: token["id"] for token in full.body["added_tokens"]}
    assert tokenizer._resolve("eos", "Mill") in tokenizer.encode("a mill") == full.encode("a mill")


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_ids_through_the_hot_path(kinds, kind):
    """Those of the library for each text, with bos and eos around them."""
    tokenizer = tm.load_tokenizer(kinds[kind], "reference")
    own = tokenizers.Tokenizer.from_file(str(kinds[kind]))
    encoded = tokenizer._encoder(bos_id=3, eos_id=4).encode(pa.array(TEXTS, pa.large_string()))
    for text, (start, end) in zip(TEXTS, pairwise([0, *encoded.ends.tolist()]), strict=True):
        assert encoded.ids[start:end].tolist() == [3, *own.encode(text, add_special_tokens=False).ids, 4], text


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_nothing_is_cut_off_filled_up_or_added(bodies, kind):
    plain, wrapped = HfTokenizer(bodies[kind]), HfTokenizer(json.dumps(json.loads(bodies[kind]) | WRAPPED))
    ids, offsets = flatten(wrapped.encode(TEXTS))
    assert (ids.dtype, offsets.dtype) == ("uint32", "int64")
    assert [ids[start:end].tolist() for start, end in pairwise(offsets)] == plain.encode_each(TEXTS)
    assert [len(array) for array in flatten(HfTokenizer(bodies[kind]).encode([]))] == [0, 1]


def test_the_pool_gives_the_same_ids(bodies, monkeypatch):
    alone = HfTokenizer(bodies["shipped"])
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    pooled = HfTokenizer(bodies["shipped"])
    assert pooled._in_batches != alone._in_batches
    assert pooled.encode_each(NASTY) == alone.encode_each(NASTY)


def test_decoding(bodies):
    made = HfTokenizer(bodies["shipped"])
    text = "def encode(text): return 'ä'"
    ids = [*made.encode_each([text])[0], 0]
    assert made.decode(ids) == text + "<|endoftext|>"


def test_names_and_ids_without_the_library(kinds):
    """1.0 does not tell them."""
    tokenizer = tm.load_tokenizer(kinds["word_piece"])
    assert tokenizer._resolve("eos", "[SEP]") == tokenizer.added["[SEP]"] == 3
    known = json.loads(tokenizer._definition.json)["model"]["vocab"]["self"]
    assert (tokenizer._resolve("eos", "self"), tokenizer.token_name(known)) == (known, "self")


def test_an_object_of_the_library(kinds):
    own = tokenizers.Tokenizer.from_file(str(kinds["byte_level"]))
    held, read = tm.load_tokenizer(own), tm.load_tokenizer(kinds["byte_level"])
    assert held.encode("a tokenmill text") == read.encode("a tokenmill text")
    assert held.decode(held.encode("a text é")) == "a text é"
    assert (held.added, held.vocab_size) == (read.added, read.vocab_size)
    assert json.loads(object_json(own))["model"]["vocab"] == json.loads(read._definition.json)["model"]["vocab"]


@pytest.mark.parametrize(
    ("kind", "spaces"),
    [("byte_level", {"\n", " "}), ("sentence_piece", {" "}), ("unigram", {" "}), ("word_piece", {"\n", " "})],
)
def test_where_documents_can_be_cut(bodies, kind, spaces):
    assert {rule.space for rule in quick_rules(rewritten(bodies[kind]))} >= spaces


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": {"type": "none", "vocab": {}}}))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: tokenizers .*cannot load it: "):
        tm.load_tokenizer(path)


def test_what_1_0_refuses_names_the_other_line(tmp_path, bodies):
    """An unknown pattern, which it refuses at the first text only; bytes without tokens, when it loads the file."""
    body = json.loads(bodies["byte_level"])
    pattern = {"type": "Split", "pattern": {"Regex": "[xyz]+"}, "behavior": "Isolated", "invert": False}
    split = {"type": "Sequence", "pretokenizers": [pattern, body["pre_tokenizer"]]}
    missing = json.loads(bodies["sentence_piece"])
    missing["model"]["vocab"] = {name.replace("<0x09>", "tab"): i for name, i in missing["model"]["vocab"].items()}
    for refused, why in ((body | {"pre_tokenizer": split}, "Split"), (missing, "<0x09>")):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(refused))
        shown = rf"tokenizers {version('tokenizers')} cannot load it: .*{why}.*below 1\.0.*pip install 'tokenizers<1'"
        with pytest.raises(TokenizerError, match=shown):
            tm.load_tokenizer(path)


def test_what_needs_the_parts_of_the_library_says_so(kinds, monkeypatch):
    monkeypatch.setattr("tokenmill.encoding.gpu.engine.installed_version", {CUPY[0]: "1"}.get)
    assert "below 1.0" in GpuEngine.refusal(tm.load_tokenizer(kinds["shipped"])._definition)
    with pytest.raises(TokenizerError, match=r"below 1\.0: pip install 'tokenizers<1'"):
        parts()


def test_the_kinds_are_those_that_are_tested():
    assert {*KINDS, "shipped"} == set(FINGERPRINTS)
