"""`tm.pack`: rows of a fixed length over a store."""

from __future__ import annotations

import os

from tokenmill.option_calls import takes
from tokenmill.options import PackOptions
from tokenmill.packing.layout import layout_of, row_format_of
from tokenmill.packing.splits import Split, chosen_splits
from tokenmill.packing.view import View
from tokenmill.store.store import Store, open_store


@takes(PackOptions, "a store, its path or its URL")
def pack(store: Store | str | os.PathLike[str], options: PackOptions) -> View:
    """Rows of `seq_len` positions over a store or the path of one. No token is copied; `view.stats` shows what it costs.

    Strategies:
        "concat"    Documents end to end, cut every `seq_len` tokens, or every `stride`. Loses nothing, except with
                    `tail="drop"`; splits most documents. Instant, because it needs no plan. With `row_start="document"`
                    every row begins at a document, and what does not fit is cut off: a third to a half of web text at 2048.
        "best_fit"  Whole documents, chosen so that rows are full; only documents longer than a row are split. Loses
                    nothing. Needs a plan of 13 bytes per document, computed at a few million documents per second.
        "pad"       One document per row, padded: mostly padding for short documents. `buckets` adds narrower rows.
        "windows"   One document per row; long documents in several rows that share `overlap` tokens.

    Documents longer than `seq_len` are split, truncated or dropped as `long_docs` says. Documents with fewer than
    `min_doc_tokens` tokens are left out. Of `mask_labels`, "first" masks tokens that would be predicted from another
    document, "overlap" those that were in the row before. Leaving out `fields` that are not needed saves their time. The
    masks are int8; "cu_seqlens" comes with "max_seqlen". With `split`, only documents from its files are in rows: one of
    `store.splits`, or "all" of them. Without it, files that are named after validation or test are left out, with a warning.

    Example:
        view = tm.pack("corpus/", 128, strategy="best_fit")
        row = view[0]                                    # {"input_ids": ..., "labels": ..., ...}, 128 positions each
        print(view.stats)                                # fill, padding, tokens lost
        train, held_out = view.split(train=0.9, eval=0.1).values()
    """
    opened = store if isinstance(store, Store) else open_store(store)
    return packed(opened, options, chosen_splits(opened, options.split))


def packed(store: Store, options: PackOptions, splits: tuple[Split, ...]) -> View:
    """The rows of a store in these splits."""
    facts = store._manifest.tokenizer
    row_format = row_format_of(options, eos_id=facts["eos_id"], vocab_size=facts["vocab_size"])
    return View(store, layout_of(options), row_format, splits)
