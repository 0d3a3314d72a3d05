"""What people type who know other tools, and what it is called here: options, their values, and commands.

A meaning is the name of an option (of several, the first that is known at the place), or a sentence with names of options in
braces. Command line, Python and recipes answer from the same tables, each in its own spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher
from typing import TypeAlias

Table: TypeAlias = tuple[tuple[str, ...], ...]
# What is meant, the words for it (see `_key`) and, if not everywhere, the verbs or sections of a recipe where it is meant.
WORDS: Table = (
    ("no batches here; rows per step of training: {batch_size}", "batch_size batch bs", "build estimate read export"),
    ("a thread prepares batches: {prefetch}; for processes, give loader.dataset() to a DataLoader with num_workers",
     "workers num_workers num_jobs num_proc threads", "load loader"),
    ("state = loader.state_dict(), and loader.load_state_dict(state) goes on from there", "resume resume_from"
     " resume_from_checkpoint checkpoint", "load loader"),
    ("a store has its own tokenizer; leave it out", "t tokenizer tokenizer_path model"
     " model_name", "pack stats open info show verify"),
    ("a store is read as it is needed; leave it out", "stream streaming", "load pack stats open show"),
    ("pack", "packing", "top"),
    ("path", "dataset dataset_name data data_dir data_files input input_dir file filename folder url", "sources"),
    ("give each view its weight: tm.mix({'web': (web, 0.7), 'code': (code, 0.3)})", "weight probabilities probs ratios", "mix"),
    ("stores are mapped, not loaded into memory; leave it out", "mmap mmap_mode keep_in_memory in_memory lazy memory_mapped"),
    ("seq_len|context_length", "seqlen block_size chunk_size chunk_len chunk_length context context_len context_length"
     " context_size ctx ctx_len num_ctx max_len max_length max_seq_len max_seq_length max_position_embeddings model_max_length"
     " cutoff_len seq_length sequence_len sequence_length row_length window window_size packed_length"),
    ("stride", "step_size hop_size"), ("overlap", "chunk_overlap overlap_size"), ("engine", "use_fast fast tokenizer_backend"),
    ("memory", "max_memory memory_limit max_ram ram mem"), ("max_chunks", "num_chunks max_files max_shards"),
    ("strategy", "packing pack_strategy packing_strategy sample_packing group_texts"), ("streaming", "stream"),
    ("rows_per_file", "rows_per_chunk samples_per_file samples_per_chunk"), ("tokens_per_file|shard_tokens", "tokens_per_shard"),
    ("shard_bytes|tokens_per_file|shard_tokens", "shard_size max_shard_size file_size num_shards num_files"),
    ("min_doc_tokens", "min_len min_length min_tokens min_doc_len"), ("pad_id", "pad pad_token pad_token_id padding_idx"),
    ("batch_size", "batch bs micro_batch_size train_batch_size per_device_train_batch_size device_batch_size"),
    ("global_batch_size", "gbs total_batch_size effective_batch_size gradient_accumulation_steps"),
    ("engines are fed by bytes; leave it out", "encode_batch_size tokenizer_batch_size map_batch_size writer_batch_size batched"),
    ("workers", "j job num_jobs num_proc nproc proc process num_processes num_workers max_workers dataset_num_proc threads"
     " num_threads preprocessing_num_workers cores num_cores cpus num_cpus tasks parallel parallelism"),
    ("cache_dir", "cache_folder cached_tokens_dir hf_cache_dir cache_path dataset_prepared_path"),
    ("revision", "branch commit tag"),
    ("out|path", "output output_dir output_path save save_to save_as save_dir dest target to out"),
    ("source|sources|store|data|inputs|path", "dataset dataset_name data data_dir data_files i in input input_dir file filename"
     " folder dir directory src corpus text_file train_file train_data path bin_file store glob"),
    ("tokenizer", "t tok model model_id model_name model_name_or_path pretrained_model_name_or_path tokenizer_name tokenizer_path"
     " tokenizer_type tokenizer_name_or_path enc vocab_file"),
    ("format", "file_type type input_format output_format data_format fmt"), ("split", "dataset_split split_name train_split"),
    ("separator", "sep document_separator doc_separator split_on"), ("config", "subset name dataset_config config_name"),
    ("text_field", "column text_column text_key text content field key jsonl_key dataset_text_field"),
    ("template", "columns column_names text_columns text_fields format_fn formatting_func prompt_template"),
    ("eos", "add_eos append_eos add_eos_token eos_token eos_id eos_token_id eod add_eod append_eod eot sep_token"),
    ("bos", "add_bos prepend_bos add_bos_token bos_token bos_id bos_token_id"), ("dtype", "torch_dtype token_dtype data_type"),
    ("{eos} and {bos} say which ids are added around documents", "add_special_tokens add_special"),
    ("special_tokens", "allowed_special disallowed_special parse_special"), ("device|engine", "gpu cuda accelerator device_map"),
    ("the strategy 'pad' gives each document a row of its own: {strategy}", "padding pad_to_max_length pad_to_multiple_of"),
    ("long_docs", "truncate truncation max_doc_length max_doc_tokens"), ("max_documents", "num_docs num_documents"),
    ("parts are held out by {shares}, by view.split(train=0.9, val=0.1), or in a recipe by split: {val: 0.1}",
     "test_size train_size val_size val_ratio train_ratio val_fraction val_split eval_split validation_split split_ratio"),
    ("on_error", "error ignore_errors skip_errors on_bad_lines strict"), ("labels", "shift_labels shift next_token"),
    ("force", "f overwrite overwrite_cache overwrite_output_dir clobber exist_ok replace rebuild no_cache"),
    ("what is built is found again by itself; {force} rebuilds it", "cache use_cache use_cached_tokens load_from_cache_file reuse"
     " cached"),
    ("run the same build again: what is finished is kept", "resume resume_from_checkpoint continue skip_existing restart"),
    ("estimate writes nothing, and {max_rows} makes a trial", "dry_run n no_write simulate preview test_run debug"),
    ("max_rows|max_chunks", "limit max_samples num_samples max_train_samples max_examples num_examples head nrows num_rows take"),
    ("max_tokens", "num_tokens token_limit total_tokens token_budget"),
    ("seed", "random_seed random_state generator data_seed shuffle_seed"),
    ("tm.mix({'web': (web, 0.7), ...}) takes weights, as does a recipe: sources.NAME.weight", "weight sampling_weights"
     " dataset_weights probabilities probs mix mixture interleave blend proportions data_mixing"),
    ("epochs", "epoch num_epochs num_train_epochs max_epochs repeat loop infinite"),
    ("a loader counts passes, {epochs}; leave its loop after so many batches", "step max_steps num_steps max_iters train_steps"),
    ("shuffle", "shuffled sampler shuffle_buffer shuffle_buffer_size buffer_size"),
    ("drop_last|tail", "drop_last drop_remainder drop_last_batch"), ("prefetch", "prefetch_factor prefetch_batches queue_size"),
    ("rank", "local_rank global_rank process_index ddp_rank dp_rank"), ("world_size", "num_replicas num_ranks dp_size num_gpus"),
    ("batches are tensors where torch is installed, arrays of numpy elsewhere", "return_tensors set_format with_format"),
    ("fields", "return_attention_mask return_position_ids remove_columns"), ("mask_labels", "label_mask loss_mask ignore_index"),
    ("verbose|quiet|progress", "v verbose verbose_level q quiet silent show_progress progress_bar tqdm disable_tqdm"),
    ("text is UTF-8; convert other files first, with iconv for example", "encoding charset"),
    ("no code of others is run; leave it out", "trust_remote_code"),
    ("log in once with `hf auth login`, or set HF_TOKEN", "token hf_token use_auth_token api_key"),
)  # fmt: skip
# Which value is meant, what is typed and, for a sentence, a value of the option that it is about.
VALUES: Table = (
    ("nanogpt|llmc|megatron", "bin dat memmap raw binary idx"), ("jsonl", "json ndjson jsonlines jl"), ("llmc", "llm.c"),
    ("tokenmill export (tm.export) writes tokens in such files, tokenmill import (tm.import_tokens) reads them",
     "bin idx dat memmap raw binary npy npz pt pth mds nanogpt llmc megatron hf safetensors", "lines"),
    ("text", "txt plain plaintext md markdown ignore"), ("pt", "torch pytorch pth"), ("hf", "huggingface dataset hf_dataset"),
    ("mds", "mosaic mosaicml streaming"), ("litdata", "litgpt lightning"), ("concat", "packed wrapped concatenate chunk greedy"),
    ("gpu", "cuda"), ("quiet", "none off silent"), ("best_fit", "bfd ffd first_fit binpack bin_packing multipack"),
    ("pad", "padding padded max_length longest"), ("quarantine", "skip ignore warn drop"), ("raise", "error fail strict"),
    ("tokenizers", "hf huggingface rust"),
)  # fmt: skip
# A command, or a sentence, and what is typed.
COMMANDS: Table = (
    ("build", "tokenize tokenise encode prepare prepare_data preprocess pretokenize process make create compile ingest"),
    ("stats", "packing statistics stat chunk group"), ("export", "convert write save dump"),
    ("info", "describe status summary inspect"), ("show", "cat head peek print view decode sample"),
    ("run", "recipe config pipeline launch exec start"), ("verify", "check validate checksum fsck repair test"),
    ("list|tokenmill cache list lists the stores of the cache, tokenmill info STORE describes one", "ls list dir"),
    ("dash", "dashboard ui web gui serve server watch monitor"), ("bench", "benchmark speed compare profile"),
    ("estimate", "count size plan cost dry_run"), ("demo", "example quickstart tutorial try"),
    ("remove|tokenmill cache remove removes stores and datasets", "rm delete del erase"),
    ("prune|tokenmill cache prune removes what was not used for long", "gc purge clear clean"),
    ("no model and no tokenizer is trained here: tm.load gives batches to a trainer", "train fit finetune pretrain"),
    ("no text is filtered or deduplicated here: do that before, with datatrove for example", "filter dedup deduplicate"),
    ("a build fetches what it reads: tokenmill build ORG/NAME -t TOKENIZER", "download fetch pull get"),
    ("a recipe mixes sources (tokenmill run), as tm.mix does, and rows are shuffled by tm.load", "mix merge blend shuffle"),
    ("run the same build again: what is finished is kept", "resume continue restart"),
)  # fmt: skip


def remedy(word: str, where: str, known: Mapping[str, str], elsewhere: Callable[[str], str]) -> str:
    """What to write for an option that is not known at a place; nothing if nothing is near.

    `known` are the options there by name, as they are written. `elsewhere` says where else an option of a name is, such as
    "seq_len of tm.pack", or nothing.
    """

    name, meaning = _plain(word), next(_meanings(WORDS, word, {where}), "")
    if " " in meaning and name not in known:
        return "; " + re.sub(r"\{(\w+)\}", lambda option: known.get(option[1]) or elsewhere(option[1]), meaning)
    there = elsewhere(name)
    here = [name, *meaning.split("|"), "" if there or meaning else _closest(word, known)]
    near = next((known[each] for each in here if each in known), "")
    if there and not near:
        home = there.partition(" of ")[2]
        return f": it belongs to {home}" if home else f"; did you mean {there}?"
    options = meaning or _closest(word, {each for options, *_ in WORDS for each in options.split("|")})
    near = near or next(filter(None, map(elsewhere, options.split("|"))), "")
    return f"; did you mean {near}?" if near else ""


def choice_remedy(table: Table, typed: str, choices: Collection[str]) -> str:
    """The same for what is one of some choices: a value of an option (VALUES), or a command (COMMANDS)."""
    for meaning in _meanings(table, typed, choices):
        fitting = " or ".join(each for each in meaning.split("|") if each in choices)
        if fitting or " " in meaning:
            return f"; did you mean {fitting}?" if fitting else f"; {meaning.rpartition('|')[2]}"
    return nearest(typed, choices)


def _meanings(table: Table, word: str, here: Collection[str]) -> Iterator[str]:
    """What a table has for a word at a place, first as it is typed, then without an ending such as -s or _path."""
    for typed in dict.fromkeys([word, word.rstrip("s"), re.sub(r"[_-](path|dir|folder|file|name)s?$", "", word)]):
        for meaning, words, *places in table:
            if _key(typed) in map(_key, words.split()) and (not places or not set(places[0].split()).isdisjoint(here)):
                yield meaning


def nearest(name: str, names: Collection[str]) -> str:
    """ "; did you mean ...?", if one of the names begins with this one, or is nearly this one. Flags may be among them."""
    plain = {_plain(one): one for one in names}
    near = _closest(name, plain)
    return f"; did you mean {plain[near]}?" if near else ""


def _closest(name: str, names: Collection[str]) -> str:
    """The name that begins with what was typed, or was meant but for slips, or that what was typed begins with."""
    typed = _plain(name)
    begin = [one for one in names if len(typed) > 2 and one.startswith(typed)]
    slips = sorted((one for one in names if _is_slip(typed, one)), key=lambda one: -_likeness(typed, one))
    ends = [one for one in names if len(one) > 3 and re.match(f"{re.escape(one)}(_|s$|ing$)", typed)]
    return next(iter([*begin, *slips, *ends]), "")


def _is_slip(typed: str, name: str) -> bool:
    """Whether letters are swapped, wrong or missing, or each word is shortened: max_docs for max_documents."""
    if _likeness(typed, name) >= 0.8 or sorted(typed) == sorted(name):
        return True
    short, long = typed.split("_"), name.split("_")
    return len(short) == len(long) and all(
        len(a) > 2 and re.match(".*".join(map(re.escape, a)), b) for a, b in zip(short, long, strict=True)
    )


def _likeness(typed: str, name: str) -> float:
    return SequenceMatcher(None, typed.replace("_", ""), name.replace("_", "")).ratio()


def _plain(name: str) -> str:
    """A name without what only sets spellings apart: "--max-rows" and "MAX_ROWS" are "max_rows"."""
    return name.strip("-").lower().replace("-", "_")


def _key(word: str) -> str:
    """A word as it is compared: n_jobs, numJobs and --num-jobs are one."""
    return re.sub(r"^n_", "num_", _plain(word)).replace("_", "")
