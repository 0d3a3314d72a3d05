"""The one table of keys. A key is spelled like the keyword of its verb, and like the flag on the command line.

Defaults are not here: what a recipe leaves out is left to the verb. `recipe.schema.json` is written from this table by
`scripts/recipe_schema.py`; a test holds the table to the verbs' own signatures and ranges.
"""

from __future__ import annotations

from tokenmill.building.terminal import MODES
from tokenmill.encoding.definition import SPECIALS
from tokenmill.encoding.engines import ENGINES
from tokenmill.loading.mixture import HEAVIEST
from tokenmill.packing.layout import EXTRA, FIELDS, LONGEST, MASK_LABELS, STRATEGIES
from tokenmill.reading import FORMATS
from tokenmill.recipes.kinds import Flag, Key, Number, OneOf, Size, SomeOf, Text, Texts, Token, Whole, Wholes

Keys = dict[str, Key]
MANY = 2**31
COUNT = Whole(1, 2**62)

# tm.read, for one source.
READ: Keys = {
    "text_field": Key(Text(), "field or column with the text, dotted if nested (text)"),
    "template": Key(Text(ends=True), 'the text from several fields: "{title}\\n\\n{body}"', none=True),
    "format": Key(OneOf(("auto", *FORMATS)), "what the files are (auto: by suffix)"),
    "separator": Key(Text(ends=True), 'what stands between documents in plain text: "<|endoftext|>"', none=True),
    "limit": Key(COUNT, "only the first so many documents, for a trial", none=True),
    "on_error": Key(OneOf(("quarantine", "raise")), "what becomes of bad documents (quarantine)"),
}
SOURCE: Keys = {
    "path": Key(Texts(), "files, globs, folders or @list.txt: one or a list; relative to the recipe's folder"),
    "store": Key(Text(), "a store that is built already, instead of path"),
    "weight": Key(Number(0, HEAVIEST), "share of the rows; needs not sum to 1. For all sources or for none", none=True),
    **READ,
}
# tm.build; without `out` in the cache.
BUILD: Keys = {
    "out": Key(Text(), "folder of the stores: each source has one below it, by its name (the cache)", none=True),
    "eos": Key(Token(), "put after each document: a token, an id, auto or none (auto)", none=True),
    "bos": Key(Token(), "put before each document: a token, an id, auto or none (none)", none=True),
    "special_tokens": Key(OneOf(SPECIALS), "what names of special tokens in the text become (parse)", none=True),
    "engine": Key(OneOf(("auto", "reference", *ENGINES)), "what encodes (auto: the fastest proved one)", none=True),
    "shard_bytes": Key(Size(), "text per shard (32MB)", none=True),
    "workers": Key(Whole(0, 4096), "worker processes; 0 works inside this one (one a core)", none=True),
    "memory": Key(Size(), "for all workers together, as 4GB (half of what is free)", none=True),
    "max_rows": Key(COUNT, "a trial: only the first so many rows of each source", none=True),
    "max_documents": Key(COUNT, "a trial: only the first so many good documents of each source", none=True),
    "max_tokens": Key(COUNT, "a trial: whole documents up to so many tokens of each source", none=True),
    "force": Key(Flag(), "make everything anew (false)"),
    "rehash": Key(Flag(), "read every input file to see whether it changed, whatever its date says (false)"),
    "cache_dir": Key(Text(), "where stores are kept that have no out (TOKENMILL_CACHE)", none=True),
    "progress": Key(OneOf(MODES), "what is shown while a build runs (auto)", none=True),
}
# tm.pack.
PACK: Keys = {
    "seq_len": Key(Whole(1, LONGEST), "positions of a row"),
    "strategy": Key(OneOf(STRATEGIES), "what a row is made of (concat)"),
    "stride": Key(Whole(1, LONGEST), "concat, windows: tokens from row to row (seq_len)", none=True),
    "overlap": Key(Whole(0, LONGEST), "concat, windows: tokens that rows share (0)", none=True),
    "tail": Key(OneOf(("keep", "drop")), "concat: a last row that is not full (keep)"),
    "row_start": Key(OneOf(("anywhere", "document")), "where rows may start (anywhere)"),
    "long_docs": Key(OneOf(("split", "truncate", "drop")), "documents longer than a row (split)"),
    "min_doc_tokens": Key(Whole(0, LONGEST), "leave out documents with fewer tokens (0)"),
    "buckets": Key(Wholes(1, LONGEST), "pad: narrower widths for short rows, as [128, 512]", none=True),
    "padding_side": Key(OneOf(("right", "left")), "where padding goes (right)"),
    "pad_id": Key(Whole(0, LONGEST), "the id of padding (eos, or 0)", none=True),
    "labels": Key(OneOf(("same", "shifted")), "same as the ids, or the token that follows (same)"),
    "mask_labels": Key(SomeOf(MASK_LABELS), "what gets label -100 (padding)", none=True),
    "fields": Key(SomeOf(FIELDS), "the arrays of a row (all of these)"),
    "extra": Key(SomeOf(EXTRA), "more arrays of a row (none)", none=True),
    "dtype": Key(OneOf(("int64", "int32")), "of the arrays (int64)"),
}
# view.split: these two, and named shares or folders.
SPLIT: Keys = {
    "by": Key(OneOf(("document", "folder")), "what decides the side of a document (document)"),
    "seed": Key(Whole(-(2**63), 2**64 - 1), "draws other documents for the same shares (0)"),
}
SHARE = Key(Number(0, 1, above=True), "this share of the documents; what is left is train")
FOLDER = Key(Text(), "by folder: documents of files below this folder")
# tm.load.
LOAD: Keys = {
    "batch_size": Key(Whole(1, MANY), "rows a rank", none=True),
    "global_batch_size": Key(Whole(1, MANY), "rows of all ranks together", none=True),
    "seed": Key(Whole(0, 2**63 - 1), "of the order of rows (0)"),
    "shuffle": Key(Flag(), "rows in another order each epoch (true)"),
    "epochs": Key(Whole(1, MANY), "one loop goes through so many (it never ends)", none=True),
    "drop_last": Key(Flag(), "leave out a last batch that is not full (true)"),
    "prefetch": Key(Whole(0, 1000), "batches made ahead, on a thread (2)"),
    "pin_memory": Key(Flag(), "tensors in pinned memory (where they go to a GPU)", none=True),
    "device": Key(Text(), "where tensors go, as cuda (the CPU)", none=True),
    "dtype": Key(OneOf(("int64", "int32")), "of the tensors (as packed)", none=True),
    "verify": Key(OneOf(("first-touch",)), "compare each block with its checksum when it is first read", none=True),
}
# The block `tokenizer: {...}` of other tools, read as it is.
BLOCK: Keys = {
    "tokenizer_name": Key(Text(), "the tokenizer"),
    "context_length": Key(Whole(1, LONGEST), "pack.seq_len"),
    "overlap": Key(Whole(0, LONGEST), "pack.overlap: below context_length (0)", none=True),
    "batch_size": Key(Whole(1, 10_000), "checked, and without effect: engines are fed by bytes", none=True),
    "num_proc": Key(Whole(1, 32), "build.workers (chosen automatically)", none=True),
    "verbose_level": Key(OneOf(("DEBUG", "INFO", "WARNING", "ERROR")), "with show_progress: build.progress (INFO)"),
    "show_progress": Key(Flag(), "with verbose_level: build.progress (true)"),
}
SECTIONS: dict[str, Keys] = {"build": BUILD, "pack": PACK, "load": LOAD}
TOP = ("sources", "tokenizer", "build", "pack", "split", "load")

# Keywords of the verbs that are no keys, because a recipe says it elsewhere or must not say it at all.
LEFT_OUT: dict[str, dict[str, str]] = {
    "read": {},
    "build": {"source": "sources", "tokenizer": "tokenizer"},
    "pack": {"store": "sources"},
    "load": {
        "data": "sources",
        "tokenizer": "tokenizer",
        "seq_len": "pack.seq_len",
        "rank": "each process has its own: recipe.loader(rank=...)",
        "world_size": "as many as there are: recipe.loader(world_size=...)",
    },
}
