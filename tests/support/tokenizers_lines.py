"""The tests that run with one line of `tokenizers` only, and why: modules, tests in them, or one set of their parameters."""

from __future__ import annotations

from tokenmill.encoding.hf_tokenizers import has_parts

TRAINS = "makes tokenizers with the library"
TRANSFORMERS = "transformers needs tokenizers below 1.0"
PARTS = "compares with the library's regular expressions and pre-tokenizers"
REGEX = "1.0 runs no regular expression that it does not know"
GPU = "the GPU engine needs tokenizers below 1.0"
OBJECT = "an object of 1.0 is written in another form than its file, and has another fingerprint"
SPACE = "1.0 reads no ByteLevel that adds a space"
FORK = "1.0 loads nothing in a forked process"
NEED_BELOW_1 = {
    "tests/encoding/test_safe_split.py::test_pre_tokenizers_that_look_far[pairs of words]": REGEX,
    "tests/encoding/test_decoder.py::test_the_space_that_byte_level_tokenizers_may_add_is_kept_as_in_tokenizers": SPACE,
    "tests/encoding/test_engine_traits.py": TRANSFORMERS,
    "tests/encoding/test_engines.py": TRANSFORMERS,
    "tests/encoding/test_gpu_rules.py": PARTS,
    "tests/encoding/test_planted_engines.py": PARTS,
    "tests/encoding/test_proof.py": PARTS,
    "tests/encoding/test_resolve.py": TRANSFORMERS,
    "tests/encoding/test_resolve_objects.py": TRANSFORMERS,
    "tests/encoding/test_tokenizer_conventions.py::test_pickles_hold_data_and_no_object_of_another_library": TRANSFORMERS,
    "tests/encoding/test_tokenizer_conventions.py::test_an_object_that_only_this_process_has_is_not_pickled": TRANSFORMERS,
    "tests/encoding/test_tokenizer_conventions.py::test_properties_cost_nothing": TRANSFORMERS,
    "tests/encoding/test_tokenizer_fingerprint.py": TRANSFORMERS,
    "tests/encoding/test_hf_tokenizers.py::test_the_pool_gives_the_same_ids": "1.0 has no such setting",
    "tests/building/test_build.py::test_an_engine_chosen_by_hand_is_held_to_the_reference": TRAINS,
    "tests/building/test_build.py::test_the_dtype_is_as_wide_as_the_vocabulary_needs": TRAINS,
    "tests/building/test_cache_mutations.py::test_a_build_is_what_one_from_scratch_would_be": OBJECT,
    "tests/building/test_cache_mutations.py::test_a_tokenizer_that_changes_in_memory": TRAINS,
    "tests/building/test_cache_changes.py::test_tokens_that_were_added": OBJECT,
    "tests/building/test_io_faults.py::test_any_call_may_fail": FORK,
    "tests/building/test_launching.py::test_a_template_has_one_thread": FORK,
    "tests/building/test_spot_check.py::test_a_process_may_fork": FORK,
    "tests/encoding/test_encoder.py::test_a_broken_configuration_is_named": TRAINS,
    "tests/encoding/test_encoder.py::test_a_reformatted_file_is_the_same_tokenizer": TRAINS,
    "tests/encoding/test_encoder.py::test_an_added_token_can_make_ids_larger_than_the_vocabulary": TRAINS,
    "tests/encoding/test_encoder.py::test_another_tokenizer_has_another_fingerprint": TRAINS,
    "tests/encoding/test_encoder.py::test_dropout_in_the_file_is_ignored": TRAINS,
    "tests/encoding/test_encoder.py::test_eos_as_the_files_beside_say": TRAINS,
    "tests/encoding/test_encoder.py::test_eos_of_a_tokenizer_that_has_none": TRAINS,
    "tests/encoding/test_encoder.py::test_eos_that_could_be_two_tokens": TRAINS,
    "tests/encoding/test_encoder.py::test_eos_that_the_configuration_made_up": TRAINS,
    "tests/encoding/test_encoder.py::test_the_dtype_holds_every_id": TRAINS,
    "tests/encoding/test_encoder.py::test_truncation_padding_and_templates_in_the_file_are_ignored": TRAINS,
    "tests/encoding/test_gpu_device.py": GPU,
    "tests/encoding/test_gpu_engine.py": GPU,
    "tests/encoding/test_gpu_process.py": GPU,
    "tests/encoding/test_sentencepiece.py::test_bpe_gives_the_same_ids": REGEX,
    "tests/encoding/test_sentencepiece.py::test_bpe_gives_the_same_ids_of_any_text": REGEX,
    "tests/encoding/test_sentencepiece.py::test_words_are_looked_up_whole_only_if_merging_makes_them": REGEX,
    "tests/encoding/test_tiktoken_bpe.py::test_a_token_over_the_last_line_break_needs_the_exact_pattern": REGEX,
    "tests/encoding/test_tiktoken_bpe.py::test_patterns_mean_the_same_in_both_engines": REGEX,
    "tests/loading/test_loading_integrations.py": TRANSFORMERS,
    "tests/store/test_store_text.py::test_the_space_that_a_tokenizer_adds_before_a_text_is_not_part_of_it": TRAINS,
    "tests/building/test_build.py::test_a_disk_that_takes_no_more": "1.0 needs room for a file to load a tokenizer",
    "tests/encoding/test_bpe_tables.py::test_tables_of_a_trained_tokenizer": PARTS,
    "tests/encoding/test_tiktoken_bpe.py::test_ids_may_have_holes": REGEX,
    "tests/encoding/test_tiktoken_bpe.py::test_real_text_encodes_the_same": REGEX,
}
NEED_1 = {
    "tests/encoding/test_hf_tokenizers.py::test_what_1_0_refuses_names_the_other_line": "0.x reads more",
    "tests/encoding/test_hf_tokenizers.py::test_what_needs_the_parts_of_the_library_says_so": "0.x has them",
}
NOT_RUN = NEED_1 if has_parts() else NEED_BELOW_1
