"""Build stores with tokenizers drawn at random, and compare every document with the reference.

    python scripts/random_tokenizers.py [--count 200] [--seed 0] [--documents 1500]

A tokenizer has a model, a normalizer, a pre-tokenizer, added tokens with flags, and a policy for special tokens, each drawn on
its own, and is trained on Python's own source code. The fast engine is asked for by name: it is proved, or refused. The
documents mix text, characters of all kinds, combining marks and added tokens. Exit code 1 if any document of a store differs.

Needs `tokenizers` below 1.0, which still trains.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import sysconfig
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

import tokenmill as tm
from tokenmill.encoding.conversion.tiktoken_patterns import KNOWN_SPELLINGS, O200K, QWEN
from tokenmill.encoding.engines import runners
from tokenmill.errors import TokenizerError

PATTERNS = [
    *dict.fromkeys(KNOWN_SPELLINGS.values()), O200K, QWEN, r"\s+|\w+|[^\w\s]+", r"\p{L}+|\p{N}{1,2}|[^\p{L}\p{N}]", r" ?[^ ]+| +",
    r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{M}+|\s|\S", r"[\p{Han}\p{Hiragana}]|\p{L}+|.|\n", r"(?i:'s|'t|'ll)|\w+|\W",
]  # fmt: skip
MEMORY = 14 << 30  # bytes; some normalizers of the library take all there is for some documents
ODD = (
    "\u0301\u0316\u0323\u0345\u0334\u093c\u0c3c\u07fd\u0898\u1ab0"
    "\u200b\u200d\u00a0\u3000\u2028\ufeff\u00ad\u0378\U0001fa8a٣²Ⅷ½'’ſİßﬁ"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--documents", type=int, default=1500)
    options = parser.parse_args()
    said: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        with ProcessPoolExecutor(1, get_context("spawn"), _limit_memory) as pool:
            try:
                outcome = pool.submit(_drawn, seed, options.documents).result()
            except BrokenProcessPool:
                outcome = f"not compared: the reference wants more than {MEMORY >> 30} GiB for a document"
        said[outcome] += 1
        print(f"{seed}: {outcome}", flush=True)
    fast = sum(count for outcome, count in said.items() if outcome.endswith("gigatoken"))
    print(f"{options.count} tokenizers, {fast} of them by gigatoken; {said['WRONG']} stores are wrong")
    return 1 if said["WRONG"] else 0


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _drawn(seed: int, documents: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return _one(random.Random(seed), Path(folder), documents)


def _one(draw: random.Random, folder: Path, documents: int) -> str:
    made = _tokenizer(draw)
    (folder / "tokenizer").mkdir()
    made.save(str(folder / "tokenizer" / "tokenizer.json"))
    names = [token.content for token in made.get_added_tokens_decoder().values()]
    policy = draw.choice(("parse", "parse", "text"))
    refusal = ""
    try:
        tokenizer = tm.load_tokenizer(folder / "tokenizer", special_tokens=policy)
        tokenizer.fingerprint  # noqa: B018
    except TokenizerError as error:
        return f"no tokenizer: {str(error).partition(': ')[2][:100]}"
    if "gigatoken" in runners(tokenizer._definition):
        try:
            tokenizer = tm.load_tokenizer(folder / "tokenizer", special_tokens=policy, engine="gigatoken")
            tokenizer.choose_engine()
        except TokenizerError as error:
            refusal = f", gigatoken refused: {str(error).partition('tokenizer: ')[2][:110]}"
            tokenizer = tm.load_tokenizer(folder / "tokenizer", special_tokens=policy)
    texts = [_text(draw, names) for _ in range(documents)]
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    if policy == "text":
        made = tokenizers.Tokenizer.from_str(tokenizer._definition.engine_json)
    else:  # as it is read: scores of a trained model lose their last digit in the file, which decides between equals
        made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    made.no_truncation()
    by_reference = [_reference_ids(made, text) for text in texts]
    kept = [text for text, ids in zip(texts, by_reference, strict=True) if ids is not None]
    expected = [ids for ids in by_reference if ids is not None]
    crashes = len(texts) - len(kept)
    store = tm.build(path, tokenizer, folder / "store", eos="none", bos="none", workers=1, progress="quiet")
    if len(store) != len(kept):
        print(f"  {len(store)} documents of {len(texts)}; the reference crashes on {crashes}")
        return "WRONG"
    wrong = [i for i, ids in enumerate(expected) if store[i].tolist() != ids]
    for i in wrong[:3]:
        print(f"  {policy}: {kept[i]!a}\n  {expected[i]}\n  {store[i].tolist()}")
    said = f"{made.model.__class__.__name__} by {tokenizer.choose_engine()}{refusal}"
    return "WRONG" if wrong else f"{said}, {crashes} documents that crash the reference" if crashes else said


def _reference_ids(reference: tokenizers.Tokenizer, text: str) -> list[int] | None:
    """The ids that are right, or None where the reference crashes: such documents are quarantined."""
    try:
        return list(reference.encode(text, add_special_tokens=False).ids)
    except BaseException as error:  # what Rust raises is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None


def _tokenizer(draw: random.Random) -> tokenizers.Tokenizer:
    modules = draw.sample(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")), 12)
    texts = [path.read_text("utf-8")[:5000] for path in modules] + [
        "naïve café ①② 中文字符 日本語 한국어 हिन्दी العربية " * 20
    ]
    kind = draw.choice(("bytes", "bytes", "bytes", "fallback", "characters", "WordPiece", "Unigram"))
    size, special = draw.randint(400, 2000), ["<unk>", "<s>", *draw.sample(["</s>", "<|end|>", "=", "é", "[x]"], 2)]
    common: dict[str, Any] = {"vocab_size": size, "special_tokens": special, "show_progress": False}
    trainer: Any
    if kind == "WordPiece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        trainer = trainers.WordPieceTrainer(**common)
    elif kind == "Unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token="<unk>", max_piece_length=8, **{**common, "vocab_size": 300})
    else:
        falls_back, plain = kind == "fallback", kind == "characters"
        more: dict[str, Any] = {"ignore_merges": draw.random() < 0.3}
        if kind != "bytes":
            more |= {"unk_token": "<unk>", "fuse_unk": draw.random() < 0.5, "byte_fallback": falls_back}
        if plain and draw.random() < 0.5:
            more["end_of_word_suffix"] = "</w>"
        made = tokenizers.Tokenizer(models.BPE(**more))
        alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "bytes" else []
        if falls_back:
            common["special_tokens"] = special + [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **common)
    usual = draw.random() < 0.6  # as models in use have it, which the fast engine runs
    if usual and kind == "fallback":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif usual and kind == "bytes":
        split = pre_tokenizers.Split(Regex(draw.choice(PATTERNS[:4])), "isolated")
        in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        alone = pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.2)
        made.pre_tokenizer = draw.choice((pre_tokenizers.Sequence([split, in_bytes]), alone))
        made.normalizer = draw.choice((None, None, normalizers.NFC()))
    else:
        made.normalizer = _normalizer(draw)
        made.pre_tokenizer = _pre_tokenizer(draw, in_bytes=kind == "bytes")
    made.train_from_iterator(texts, trainer)
    for name in draw.sample(
        ["<think>", "<think>>", "word", "é\u0301", "\n\n", "  ", "1", "<|im_start|>", "don't"], draw.randint(0, 4)
    ):
        flags = {flag: draw.random() < 0.3 for flag in ("single_word", "lstrip", "rstrip", "normalized")}
        (made.add_special_tokens if draw.random() < 0.4 else made.add_tokens)([AddedToken(name, **flags)])
    if kind == "fallback":
        body = json.loads(made.to_str())
        body["added_tokens"] = [token for token in body["added_tokens"] if not token["content"].startswith("<0x")]
        made = tokenizers.Tokenizer.from_str(json.dumps(body))
    return made


def _normalizer(draw: random.Random) -> Any:
    some = [
        normalizers.NFC,
        normalizers.NFD,
        normalizers.NFKC,
        normalizers.NFKD,
        normalizers.Lowercase,
        normalizers.StripAccents,
    ]
    some += [
        lambda: normalizers.Replace("''", '"'),
        lambda: normalizers.Prepend("▁"),
        lambda: normalizers.Replace(" ", "▁"),
    ]
    some += [normalizers.Strip, normalizers.BertNormalizer, lambda: normalizers.Replace(Regex(" {2,}"), " ")]
    chosen = [draw.choice(some)() for _ in range(draw.choice((0, 0, 0, 1, 1, 1, 2, 3)))]
    return normalizers.Sequence(chosen) if len(chosen) > 1 else chosen[0] if chosen else None


def _pre_tokenizer(draw: random.Random, *, in_bytes: bool) -> Any:
    def split() -> Any:
        behavior = draw.choice(
            ("isolated", "isolated", "isolated", "removed", "merged_with_previous", "merged_with_next")
        )
        return pre_tokenizers.Split(Regex(draw.choice(PATTERNS)), behavior, invert=draw.random() < 0.1)

    some = [
        split,
        split,
        pre_tokenizers.Whitespace,
        pre_tokenizers.Metaspace,
        pre_tokenizers.Punctuation,
        pre_tokenizers.BertPreTokenizer,
    ]
    some += [
        pre_tokenizers.Digits,
        lambda: pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.UnicodeScripts,
    ]
    chosen = [draw.choice(some)() for _ in range(draw.choice((0, 1, 1, 1, 2)))]
    if in_bytes:
        use_regex = not chosen or draw.random() < 0.3
        chosen.append(pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.2, use_regex=use_regex))
    return pre_tokenizers.Sequence(chosen) if len(chosen) > 1 else chosen[0] if chosen else None


def _text(draw: random.Random, names: list[str]) -> str:
    parts = []
    for _ in range(draw.randint(0, 25)):
        kind = draw.random()
        if kind < 0.35:
            parts.append(
                draw.choice(
                    (
                        "word",
                        "don't",
                        "The",
                        "HTTPServer",
                        "x1",
                        "12345",
                        "\n",
                        "  ",
                        "\t",
                        "中文",
                        "한국",
                        "café",
                        "def f(x):",
                    )
                )
            )
        elif kind < 0.55:
            parts.append("".join(draw.choices(ODD, k=draw.randint(1, 3))))
        elif kind < 0.75:
            parts.append(
                chr(
                    draw.choice(
                        (draw.randrange(0xD800), draw.randrange(0xE000, 0x20000), draw.randrange(0x300, 0x1000))
                    )
                )
            )
        elif kind < 0.9 and names:
            parts.append(draw.choice(names))
        else:
            parts.append(draw.choice(" .,'-_/aA1"))
        if draw.random() < 0.4:
            parts.append(" ")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main())
