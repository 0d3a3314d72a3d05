"""Four kinds of tokenizer, as in the model families in use, each trained in a fraction of a second."""

from __future__ import annotations

import json
from collections.abc import Callable

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers


def word_piece(texts: list[str]) -> tokenizers.Tokenizer:
    """As BERT: lower case, words and punctuation, pieces with ##."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    )
    return made


def unigram(texts: list[str]) -> tokenizers.Tokenizer:
    """As T5: NFKC, a mark for every space, the likeliest pieces."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False, max_piece_length=8
    )
    made.train_from_iterator([text[:1500] for text in texts], trainer)
    return made


def sentence_piece(texts: list[str]) -> tokenizers.Tokenizer:
    """As Llama 2: one mark before the document and for every space, no words, bytes for what is not in the vocabulary."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False, max_token_length=10)
    made.train_from_iterator(texts, trainer)
    body = json.loads(made.to_str())
    body["pre_tokenizer"] = None
    body["added_tokens"] = body["added_tokens"][:3]
    return tokenizers.Tokenizer.from_str(json.dumps(body))


def byte_level(texts: list[str]) -> tokenizers.Tokenizer:
    """As GPT-2, trained here; with a second special token and a plain added word."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.add_tokens(["tokenmill"])
    return made


KINDS: dict[str, Callable[[list[str]], tokenizers.Tokenizer]] = {
    "word_piece": word_piece,
    "unigram": unigram,
    "sentence_piece": sentence_piece,
    "byte_level": byte_level,
}
NASTY = [
    "ab",
    "Zq",
    "7",
    "\n",
    "\r\n",
    "\t",
    "",
    "'",
    "'s",
    "'LL",
    ".",
    ",",
    "_",
    "-",
    "中",
    "文",
    "é",
    "é",
    "́",
    "👍",
    "👩\u200d👩\u200d👧",
    "\u200b",
    "\ufeff",
    "\xa0",
    "\u3000",
    "\x00",
    "\x7f",
    "▁",
    "Ġ",
    "##",
    "½",
    "ﬁ",
    "İ",
    "ß",
    "<|endoftext|>",
    "<|im_start|>",
    "</s>",
    "<s>",
    "<unk>",
    "[CLS]",
    "[MASK]",
    "<0x0A>",
    "tokenmill",
]


def ids_of(reference: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
