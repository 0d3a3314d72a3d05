"""What is public on the objects that users hold, and what help shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenmill as tm

ROOT = Path(__file__).parents[2]
NAMES = {
    "Store": """
        column columns complete document_at dtype failed fingerprint input_files lengths locate name num_shards num_tokens
        path quarantine source splits stream_ends text to_arrow tokenizer url verify
    """,
    "View": "buckets documents fingerprint rows seq_len split stats store strategy",
    "Loader": """
        batch batch_size data dataset drop_last epoch epochs fingerprint global_batch_size load_state_dict prefetch progress
        rank seed seen shuffle state_dict step world_size
    """,
    "Tokenizer": """
        added bos_id decode decode_bytes describe dtype encode engine engine_version eos_id fingerprint name proof
        reference_line special_ids special_tokens token_name vocab_size
    """,
    "Source": """
        config files format ignored ignored_by_reason inputs num_bytes on_error revision separator separator_newlines split
        streaming template text_field
    """,
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> dict[str, object]:
    source = tm.read(str(ROOT / "README.md"))
    store = tm.build(source, "bytes", tmp_path_factory.mktemp("public") / "store", progress="quiet", workers=0)
    view = tm.pack(store, 32)
    found = [source, store, view, tm.load(view, 2), tm.load_tokenizer("bytes")]
    return {type(each).__name__: each for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_these_names_are_public(objects, name):
    """A public name is a promise: it is added on purpose, and explained in docs/api.md."""
    found = [each for each in dir(objects[name]) if not each.startswith("_")]
    assert found == sorted(NAMES[name].split())
    section = (ROOT / "docs" / "api.md").read_text("utf-8").split(f"\n## tm.{name}\n")[1].split("\n## ")[0]
    assert [
        each for each in found if f"\n### {name}.{each}\n" not in section and f"\n| `{each}` |" not in section
    ] == []
