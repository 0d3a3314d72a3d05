"""What people write on these objects who know other libraries, and what to write here: one table, and who answers from it."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tokenmill.errors import UnknownOptionError

_CHANGE = "map apply set_transform with_transform add_column remove_columns rename_column cast"
_TENSORS = "with_format set_format to_torch torch to cuda device tensor to_tensor collate_fn"
_LOADER = "loader dataloader data_loader batch load shuffle shuffled iter"
_SIZE = "block_size max_length max_seq_len max_seq_length sequence_length context_length"
_SPLIT = "train_test_split random_split train_val_split train validation val test shard"
_LOAD = "from_pretrained get_encoding encoding_for_model tokenizer from_file AutoTokenizer"
# Of what, what to write (or to know), and the names it is for: "__init__" is a call of the class, "given" an object where another
# is taken, "file" the end of a file's name. {name} stands for the name, {self} for the object.
HABITS = (
    ("Store", "write len(store)", "num_rows nrows num_documents num_examples num_samples size count length"),
    ("Store", "write len(store), store.num_tokens", "shape ntokens token_count numel"),
    ("Store", "write store.num_tokens * store.dtype.itemsize", "nbytes num_bytes size_in_bytes size_bytes dataset_size"),
    ("Store", "write store.lengths, or store.stream_ends", "sizes offsets document_lengths sequence_lengths doc_idx"),
    ("Store", "write store.columns; store[0] is the ids of a document", "column_names features schema fields keys items"),
    ("Store", "write store.text(0)", "decode texts read_text document detokenize"),
    ("Store", "write store.tokenizer.vocab_size, store.tokenizer.eos_id", "vocab_size eos_id bos_id eos_token_id eos_token"),
    ("Store", "write store[:10], a list of arrays", "select take head tail iloc peek sample limit slice rows get first"),
    ("Store", "write tm.pack(store, 64, min_doc_tokens=32): it has no short documents", "filter where drop remove query"),
    ("Store", "it does not change: write for ids in store, or change the texts before tm.build", f"{_CHANGE} update insert"),
    ("Store", "give all inputs to tm.build, which encodes only what is new", "append extend add concat merge __add__"),
    ("Store", "write tm.pack(store, 64).split(train=0.9, val=0.1)", f"{_SPLIT} split"),
    ("Store", "write [ids.tolist() for ids in store]", "to_list tolist to_dict as_list to_pylist"),
    ("Store", "write np.concatenate(list(store)), or store.to_arrow()", "__array__ tokens input_ids ids to_numpy numpy flat"),
    ("Store", "write store.to_arrow(), which pandas and polars take", "to_pandas to_polars to_df to_frame to_table arrow df"),
    ("Store View", "write tm.export({self}, 'copy', format='hf')", "export save save_to_disk push_to_hub to_parquet write"),
    ("Store", "write tm.pack(store, 64), and tm.load(view, 4) for tensors", f"{_TENSORS} {_LOADER} {_SIZE} pack view labels"),
    ("Store", "write print(store), or tokenmill info", "metadata meta config info summary describe stats manifest"),
    ("Store", "write tm.open('store'), or tm.build('data/corpus.jsonl', 'bytes', 'out')", "__init__ open load_from_disk"),
    ("Store", "write store[0][:10]", "[tuple]"),
    ("Store", "write store.text(0)", "[text]"),
    ("View", "write len(view), view.seq_len", f"{_SIZE} width num_rows nrows num_examples num_samples size count length"),
    ("View", "write view.stats", "num_tokens num_documents fill padding efficiency utilization describe"),
    ("View", "write view.store.tokenizer", "tokenizer decode encode vocab_size eos_id eos_token_id pad_token_id text"),
    ("View", "write view[0].keys()", "column_names columns fields features keys schema"),
    ("View", "write view.rows([0, 1]), or view.split(train=0.9, val=0.1)", "select take head tail iloc peek sample row get show"),
    ("View", "write view.rows(range(len(view)))['input_ids']", "input_ids ids tokens labels to_list tolist to_dict numpy"),
    ("View", "write view[0]['input_ids'][:10]", "[tuple]"),
    ("View", "write tm.load(view, 4): batches in another order", f"{_TENSORS} {_LOADER} {_CHANGE} batch_size set_epoch seed"),
    ("View", "write view.split(train=0.9, val=0.1)", _SPLIT),
    ("View", "write tm.mix({'a': (view, 1), 'b': (view, 1)})", "__add__ add concat concatenate interleave mix"),
    ("View", "write tm.pack(store, 64)", "__init__ pack"),
    ("Source", "write tm.read('data/corpus.jsonl')", "__init__ from_file"),
    ("Source", "write tm.build(source, 'bytes', 'out')", f"build tokenize encode {_LOADER} {_CHANGE} text select take head"),
    ("Loader", "a loop begins the next epoch by itself, in another order", "set_epoch next_epoch new_epoch"),
    ("Loader", "a thread makes loader.prefetch batches ahead; processes: loader.dataset()", "num_workers workers"),
    ("Loader", "write loader.data: a view has seq_len, store and a length", f"{_SIZE} view store sampler seq_len tokenizer"),
    ("Loader", "write len(loader)", "num_batches num_steps steps steps_per_epoch max_steps size length"),
    ("Loader", "write next(batches), after batches = iter(loader) once", "next next_batch get_next iterator batches"),
    ("Loader", "write loader.batch(0)", "get_batch sample first peek take head shape dtype"),
    ("Loader", "write loader.step, loader.epoch, or loader.progress()", "global_step current_step iteration current_epoch"),
    ("Loader", "write loader.state_dict(), and loader.load_state_dict(state)", "save state checkpoint load load_state resume"),
    ("Loader", "change batches in the loop: for batch in loader; device= is of tm.load", f"{_CHANGE} {_TENSORS} filter"),
    ("Loader", "write tm.load(view, 4)", "__init__ reset rewind"),
    ("Tokenizer", "write tokenizer.encode(['one text', 'another'])", "encode_batch batch_encode_plus encode_plus"),
    ("Tokenizer", "write tokenizer.decode([[70, 71], [72]])", "batch_decode decode_batch decode_ids convert_tokens_to_string"),
    ("Tokenizer", "write tokenizer.token_name(70)", "tokenize tokens convert_ids_to_tokens id_to_token id_to_piece"),
    ("Tokenizer", "write len(tokenizer.encode('a text'))", "num_tokens count token_count count_tokens"),
    ("Tokenizer", "write tokenizer.added, or tokenizer.special_ids",
     "token_to_id convert_tokens_to_ids piece_to_id get_added_vocab special_tokens_map all_special_ids all_special_tokens"),
    ("Tokenizer", "write tokenizer.vocab_size", "num_vocab get_piece_size num_words size length"),
    ("Tokenizer", "write {tokenizer.token_name(id): id for id in range(tokenizer.vocab_size)}", "vocab vocabulary"),
    ("Tokenizer", "write tokenizer.eos_id", "eot_token eot eod eos eot_id eod_id eos_token"),
    ("Tokenizer", "write tokenizer.bos_id", "bos_token_id bos_token bos cls_token_id"),
    ("Tokenizer", "rows are padded by tm.pack(store, 64, strategy='pad', pad_id=0)", "pad_token pad pad_id padding_side padding"),
    ("Tokenizer", "rows are cut by tm.pack(store, 64, long_docs='truncate')", "model_max_length truncation truncate"),
    ("Tokenizer", "ids around documents come from tm.build: give it eos= and bos=", "add_bos_token add_eos_token add_tokens"),
    ("Tokenizer", "a store keeps its tokenizer: copy the folder store.tokenizer.path", "save save_pretrained save_model to_file"),
    ("Tokenizer", "write tm.read('data/corpus.jsonl', template='{text}')", "apply_chat_template chat_template"),
    ("Tokenizer", "write tm.load_tokenizer('bytes'), a path or a name on the Hub", f"__init__ {_LOAD} load train"),
    ("Tokenizer.encode", "it adds no ids; eos= and bos= of tm.build do", "add_special_tokens bos eos"),
    ("Tokenizer.encode", "write torch.from_numpy(tokenizer.encode('a text').astype('int64'))", "return_tensors"),
    ("Tokenizer.encode", "rows are cut and padded by tm.pack", "truncation padding max_length"),
    ("Tokenizer.encode", "write tm.load_tokenizer('bytes', special_tokens='text')", "allowed_special disallowed_special"),
    ("Tokenizer.decode", "leave out tokenizer.special_ids before, or write store.text(0)", "skip_special_tokens"),
    ("Tokenizer.decode", "write tokenizer.decode_bytes([70])", "errors clean_up_tokenization_spaces"),
    ("Estimate", "write estimate.tokens, estimate.documents", "num_tokens total count num_documents num_rows"),
    ("Estimate", "write estimate.seconds, estimate.disk_bytes", "time duration eta size nbytes num_bytes"),
    ("Recipe", "write recipe.stores()", "build run execute tokenize store"),
    ("Recipe", "write recipe.view(), or recipe.loader('eval')", "pack dataset load dataloader batches train eval val"),
    ("tm", "write tm.open('store')", "load_from_disk load_store open_store open_dataset TokenStore"),
    ("tm", "write tm.build('data/corpus.jsonl', 'bytes', 'out'), or tm.read",
     "load_dataset tokenize encode prepare preprocess process tokenize_dataset build_dataset read_json read_csv create Pipeline"),
    ("tm", "write tm.pack(store, 64), a View, and tm.load(view, 4)", "Dataset TokenDataset IterableDataset PackedDataset chunk"),
    ("tm", "write tm.load(view, 4, seed=1)", "DataLoader StatefulDataLoader StreamingDataLoader batches shuffle set_seed"),
    ("tm", "write tm.mix({'web': (view, 0.7), 'code': (view, 0.3)})", "interleave_datasets concatenate_datasets Mixture"),
    ("tm", "write tm.load_tokenizer('bytes'), a path or a name on the Hub", _LOAD),
    ("tm", "write tm.estimate('data/corpus.jsonl', 'bytes')", "count count_tokens num_tokens"),
    ("tm", "write tm.export(store, 'copy', format='hf')", "save save_to_disk to_hf write to_parquet to_bin push_to_hub"),
    ("tm", "write tm.import_tokens('bin/train.bin', 'imported', tokenizer='bytes')", "from_bin from_numpy memmap"),
    ("tm", "write tm.recipe('recipe.yaml')", "Config from_config load_config from_yaml run"),
    ("tm", "write store.verify(), print(store), or view.stats", "verify check validate info describe inspect stats"),
    ("tm", "write view.split(train=0.9, val=0.1)", f"{_SPLIT} split"),
    ("tm", "write tm.errors.{name}", "TokenmillError UsageError InputError TokenizerError EncodingError BuildError StoreError"),
    ("given", "it has no rows of its own: give its view, loader.data", "Loader"),
    ("given", "write view.store", "View"),
    ("given", "write tm.build(source, 'bytes', 'out')", "Source Dataset DataFrame Table"),
    ("given", "write ids.tofile('train.bin'), and tm.import_tokens of that path", "ndarray Tensor"),
    ("file", "write np.load('bin/train.npy').tofile('train.bin'), and import that", ".npy"),
    ("file", "text is for tm.build", ".txt .jsonl .json .csv"),
)  # fmt: skip
_SAME = {"n": "num", "total": "num", "doc": "document", "seq": "sequence"}
_FILL = {"get", "the", "is", "all"}


@functools.cache
def _words(name: str) -> frozenset[str] | str:
    """ "num_docs", "n_docs" and "totalDocs" are {"num", "document"}; special names are themselves."""
    words = [word.lower().removesuffix("s") for word in re.findall("[A-Z]*[a-z]+|[A-Z]+", name)]
    return (frozenset(_SAME.get(word, word) for word in words) - _FILL if name[:1].isalpha() else None) or name


_NAMES = [(of, name, text) for many, text, names in HABITS for of in many.split() for name in names.split()]
_MEANT = {(of, _words(name)): text for of, name, text in _NAMES} | {(of, name): text for of, name, text in _NAMES}


@functools.cache
def answer(of: str | type, name: str) -> str:
    """ ": write len(store)", or nothing. `of` is a key of the table, or a class, also of what it inherits from."""
    for each in [of] if isinstance(of, str) else [kind.__name__ for kind in of.__mro__]:
        if text := _MEANT.get((each, name)) or _MEANT.get((each, _words(name))):
            return f": {text.replace('{name}', name).replace('{self}', each.lower())}"
    return ""


def answer_at(kind: type, index: object) -> str:
    """The same for what is not an index."""
    name = index if isinstance(index, str) else type(index).__name__
    return answer(kind, f"[{name}]") or answer(kind, name)


class _Answered(type):
    if not TYPE_CHECKING:  # type checkers still find misspelt names

        def __getattr__(cls, name):
            raise _unknown(cls, name, cls)

        def __call__(cls, *args, **keywords):
            return _answering(super().__call__, cls, "__init__")(*args, **keywords)


class Answering(metaclass=_Answered):
    """The base of what users hold: an unknown name is answered with what to write instead."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __init_subclass__(cls):
            for of in {of for of, *_ in HABITS if of.startswith(f"{cls.__name__}.")}:
                name = of.partition(".")[2]
                setattr(cls, name, _answering(vars(cls)[name], of))

        def __getattr__(self, name):
            if any(name in vars(each) for each in type(self).__mro__):  # a property has failed: its own error
                return object.__getattribute__(self, name)
            raise _unknown(type(self), name, self)

        def __add__(self, other):
            text = answer(type(self), "__add__")
            if not text:
                return NotImplemented
            raise TypeError(f"{type(self).__name__} + {type(other).__name__}{text}")


class Identified(Answering):
    """What users' objects share: equality by fingerprint, and answers to names that other libraries have."""

    if TYPE_CHECKING:

        @property
        def fingerprint(self) -> str: ...

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _unknown(kind: type, name: str, found: object) -> AttributeError:
    if text := answer(kind, name):
        return AttributeError(f"{kind.__name__} has no {name!r}{text}", name=name, obj=None)
    who = f"type object {kind.__name__!r}" if found is kind else f"{kind.__name__!r} object"
    return AttributeError(f"{who} has no attribute {name!r}{nearest(name, dir(found))}", name=name, obj=None)


def nearest(name: str, names: Iterable[str]) -> str:
    """ ". Did you mean: ...?" as Python says it, which only consoles show."""
    near = difflib.get_close_matches(name, [each for each in names if each[:1] != "_"], 1, 0.7)
    return f". Did you mean: {near[0]!r}?" if near else ""


def _answering(function: Any, of: str | type, *names: str) -> Any:
    """The function; a call that does not fit it is answered with what one of the names or keywords stands for."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            found = next(filter(None, (answer(of, name) for name in [*names, *keywords])), "")
            if not found or error.__traceback__ is None or error.__traceback__.tb_next is not None:  # from within
                raise
            raise (TypeError if names else UnknownOptionError)(f"{error}{found}") from None

    return call
