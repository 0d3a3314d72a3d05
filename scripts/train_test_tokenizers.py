"""How the tokenizers that the tests use were made: four kinds, as in the model families in use, each trained in a second.

    python scripts/train_test_tokenizers.py

Needs `tokenizers` below 1.0, which still trains. Another Python has other texts, and gives other tokenizers. Those with
decoders are trained on some lines of prose, and are the same everywhere.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from tokenizer_kinds import PROSE

TARGET = Path(__file__).parent.parent / "tests" / "support" / "trained"


def changed(made: tokenizers.Tokenizer, change: Callable[[dict[str, Any]], None]) -> tokenizers.Tokenizer:
    body = json.loads(made.to_str())
    change(body)
    return tokenizers.Tokenizer.from_str(json.dumps(body))


def word_piece(
    texts: list[str], size: int = 700, special: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
) -> tokenizers.Tokenizer:
    """As BERT: lower case, words and punctuation, pieces with ##."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inside = [f"##{letter}" for letter in sorted(filter(str.isalnum, {*"".join(texts).lower()}))]  # else in any order
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*special, *inside], show_progress=False)
    made.train_from_iterator(texts, trainer)
    return changed(made, lambda body: body.update(added_tokens=body["added_tokens"][: len(special)]))


def unigram(texts: list[str], size: int = 300, normalizer: Any = None, longest: int = 8) -> tokenizers.Tokenizer:
    """As T5: a mark for every space, the likeliest pieces."""
    made = tokenizers.Tokenizer(models.Unigram())
    if normalizer is not None:
        made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<unk>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
        max_piece_length=longest,
    )
    made.train_from_iterator([text[:1500] for text in texts], trainer)
    return changed(made, rounded)


def rounded(body: dict[str, Any]) -> None:
    """The same pieces with scores that do not vary from run to run, and no two that are equal."""
    vocabulary = body["model"]["vocab"]
    ordered = sorted(vocabulary[2:], key=lambda piece: (-round(piece[1], 2), piece[0]))
    vocabulary[2:] = [[name, round(round(score, 2) - place / 1e6, 6)] for place, (name, score) in enumerate(ordered)]


def sentence_piece(texts: list[str], size: int = 900, longest: int | None = 10) -> tokenizers.Tokenizer:
    """As Llama 2: one mark before the document and for every space, no words, bytes for what is not in the vocabulary."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False, max_token_length=longest
    )
    made.train_from_iterator(texts, trainer)
    return changed(made, lambda body: body.update(pre_tokenizer=None, added_tokens=body["added_tokens"][:3]))


def byte_level(
    texts: list[str], size: int = 800, special: tuple[str, ...] = ("<|endoftext|>", "<|im_start|>")
) -> tokenizers.Tokenizer:
    """As GPT-2, trained here."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


def with_a_word(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same with a plain added word."""
    made.add_tokens(["tokenmill"])
    return made


def with_decoder(made: tokenizers.Tokenizer, decoder: Any) -> tokenizers.Tokenizer:
    made.decoder = decoder
    return made


def kinds(texts: list[str]) -> dict[str, tokenizers.Tokenizer]:
    return {
        "word_piece": word_piece(texts),
        "unigram": unigram(texts, normalizer=normalizers.NFKC()),
        "sentence_piece": sentence_piece(texts),
        "byte_level": with_a_word(byte_level(texts)),
    }


def with_decoders(texts: list[str]) -> dict[str, tokenizers.Tokenizer]:
    """The same kinds, smaller. So few byte-level tokens that most characters beyond ASCII are cut."""
    as_llama = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return {
        "word_piece": with_decoder(word_piece(texts, 200, ("[UNK]", "[SEP]")), decoders.WordPiece()),
        "unigram": with_decoder(unigram(texts, 160, longest=16), decoders.Metaspace()),
        "sentence_piece": with_decoder(sentence_piece(texts, 420, None), decoders.Sequence(as_llama)),
        "byte_level": with_decoder(byte_level(texts, 320, ("<|end|>",)), decoders.ByteLevel()),
    }


def write(folder: Path, made: dict[str, tokenizers.Tokenizer]) -> None:
    folder.mkdir(exist_ok=True)
    for name, tokenizer in made.items():
        body = json.loads(tokenizer.to_str())
        (folder / f"{name}.json").write_text(json.dumps(body, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:25]
    write(TARGET, kinds([path.read_text("utf-8")[:6000] for path in modules]))
    write(TARGET / "with_decoders", with_decoders(PROSE))


if __name__ == "__main__":
    main()
