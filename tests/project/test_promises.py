"""Each promise of the README, and the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PROMISES: dict[str, dict[str, list[str]]] = {
    "Fast.": {
        "less time than encoding the same file in memory": ["benchmarks/test_bench_builds.py::test_builds"],
    },
    "Exact.": {
        "Every token id equals the reference tokenizer's": [
            "encoding/test_encoder.py::test_real_text_is_exact",
            "encoding/test_encoder.py::test_any_text_is_exact",
        ],
        "is proved, character by character": [
            "encoding/test_proof.py::test_one_differing_id_and_an_engine_is_refused",
            "encoding/test_proof.py::test_characters_younger_than_an_engines_unicode",
            "encoding/test_proof.py::test_an_engine_that_mistakes_a_flag_of_an_added_token",
            "encoding/test_planted_engines.py::test_an_engine_with_one_wrong_property_is_caught",
        ],
        "once and in seconds": [
            "encoding/test_choosing.py::test_little_text_is_encoded_by_the_reference",
            "encoding/test_choosing.py::test_more_text_is_encoded_by_the_engine_that_is_proved",
        ],
        "a spot check stops a build at the first difference": [
            "building/test_spot_check.py::test_a_wrong_engine_is_caught"
        ],
    },
    "Any tokenizer.": {
        "A path": ["encoding/test_resolve.py::test_a_folder_with_a_sentencepiece_model"],
        "a Hub name": ["encoding/test_hub.py::test_a_revision_is_a_branch_a_tag_or_a_commit"],
        "tiktoken:cl100k_base": ["encoding/test_resolve.py::test_tiktokens_encodings_by_name"],
        "`bytes`": ["encoding/test_resolve.py::test_bytes"],
        "tokenizer object": ["encoding/test_resolve_objects.py::test_a_tokenizer_of_tokenizers"],
    },
    "Never stale.": {
        "keyed by content, tokenizer and options": [
            "building/test_cache_mutations.py::test_a_build_is_what_one_from_scratch_would_be"
        ],
        "If one file changes, one file is encoded": [
            "building/test_cache_incremental.py::test_only_what_changed_is_done"
        ],
        "a cache miss explains itself": ["building/test_cache_faults.py::test_why_writes_nothing"],
    },
    "Crash-safe.": {
        "Kill a build at any moment": [
            "building/test_build_kills.py::test_fifty_kills",
            "building/test_io_faults.py::test_any_call_may_fail",
            "building/test_supervisor.py::test_any_schedule_gives_the_same_store_and_ends",
        ],
        "Streams are encoded as they are read": [
            "building/test_streams.py::test_little_is_on_disk",
            "building/test_streams.py::test_the_same_bytes_as_from_a_file",
        ],
        "cut the power": ["building/test_io_faults.py::test_the_power_may_fail_at_any_step"],
        "The bytes are the same with 1 worker or 64": [
            "building/test_build.py::test_the_same_bytes_with_any_number_of_workers",
            "building/test_determinism.py::test_environments",
        ],
    },
    "Accountable.": {
        "Documents in = documents out + quarantined": [
            "building/test_build.py::test_documents_in_equal_documents_out_and_quarantined",
            "reading/test_discover.py::test_everything_that_is_not_read_is_named_with_the_reason",
        ],
        "Every bad row is listed with file, row and reason": [
            "building/test_poison.py::test_a_build_counts_every_document"
        ],
        "every document": ["building/test_build.py::test_documents_in_the_order_of_files_and_rows"],
        "every byte has a checksum": [
            "store/test_store_damage.py::test_one_flipped_bit_is_found",
            "store/test_consistency.py::test_a_manifest_that_contradicts_its_shards",
        ],
    },
    "Packing is a view.": {
        "takes milliseconds, copies nothing": [
            "packing/test_pack.py::test_another_row_length_reads_no_source_and_runs_no_tokenizer"
        ],
        "reports padding,": ["packing/test_packing_rows.py::test_rows_and_figures_are_those_of_the_contract"],
    },
    "Resumable training data.": {
        "Global batch `t` depends on": [
            "loading/test_load.py::test_global_batches_are_the_same_on_any_number_of_ranks"
        ],
        "Change the number of GPUs and continue": [
            "loading/test_loading_resume.py::test_three_kills_on_changing_ranks_change_no_batch"
        ],
    },
    "Not a trap.": {
        "Stores become the files": [
            "exchange/test_formats.py::test_datasets_finds_the_splits",
            "exchange/test_exported_rows.py::test_rows_are_those_of_the_view",
        ],
        "theirs become stores": ["exchange/test_bad_tokens.py::test_damaged"],
    },
}


def test_each_promise_of_the_readme_names_its_tests():
    text = (ROOT / "README.md").read_text("utf-8")
    promises = dict(re.findall(r"^- \*\*(.+?)\*\* (.+?)(?=^- \*\*|\n\n)", text, flags=re.MULTILINE | re.DOTALL))
    assert promises.keys() == PROMISES.keys()
    for title, parts in PROMISES.items():
        for words in parts:
            assert words in promises[title].replace("\n  ", " "), f"{title}: the README does not say {words!r}"


def test_each_named_test_exists():
    for parts in PROMISES.values():
        for tests in parts.values():
            for test in tests:
                path, name = test.split("::")
                assert re.search(rf"^\s*def {name}\(", (ROOT / "tests" / path).read_text("utf-8"), re.MULTILINE), test
