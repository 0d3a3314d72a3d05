"""The cache is right: whatever is done to files, tokenizer and options, a build is what one from scratch would be.

Each row of the table below does one thing between two builds and says whether the second may use what the first made
("hit"), must not ("miss"), or may do either as long as the result is right ("either").
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers
from cache_world import (
    EPOCH,
    MEMORY,
    SETTLED_SECONDS,
    Mapped,
    World,
    add_token,
    added,
    all_of,
    another_eos_in_config,
    asked,
    bad_rows,
    copied,
    cut_and_pad,
    gzip_files,
    in_environment,
    json_lines,
    jsonl_files,
    linked,
    linked_file,
    linked_folder,
    listed,
    moved,
    names_of,
    nothing,
    one_table,
    optioned,
    other_word,
    packed,
    quarantine,
    recompressed,
    relinked,
    renamed,
    replaced,
    rewritten_table,
    scratch,
    set_flag,
    special_names,
    swap_merges,
    swap_merges_unseen,
    swapped_contents,
    swapped_lines,
    swapped_names,
    text_files,
    tokenizer,
    tokenizer_elsewhere,
    tokenizer_file,
    tokenizer_object,
    with_added_token,
    write,
)

from tokenmill.errors import DocumentError


@dataclass(frozen=True)
class Row:
    name: str
    does: Callable[[World], Any]
    expected: str
    differs: bool | None = None  # whether another fingerprint is right, after a miss
    prepare: Callable[[World], Any] = jsonl_files
    first: dict[str, Any] = field(default_factory=dict)  # options of the first build too


HIT, MISS, EITHER = "hit", "miss", "either"
TABLE = [
    # Files
    Row("nothing", nothing, HIT),
    Row("another byte, same size and date", write("f1.jsonl", other_word, keep_times=True), MISS, True),
    Row("another byte by rename, same size and date", replaced("f1.jsonl", other_word), MISS, True),
    Row("an equal file by rename", replaced("f1.jsonl", bytes), HIT),
    Row("touched", lambda w: os.utime(w.data / "f1.jsonl"), HIT),
    Row("touched, all of them, into the past", lambda w: [os.utime(f, ns=(EPOCH,) * 2) for f in w.data.iterdir()], HIT),
    Row("written again with the same bytes", write("f1.jsonl", bytes), HIT),
    Row("chmod", lambda w: os.chmod(w.data / "f1.jsonl", 0o600), HIT),
    Row("renamed, order kept", renamed("f1.jsonl", "f1-new.jsonl"), HIT),
    Row("renamed, order changed", renamed("f1.jsonl", "z.jsonl"), MISS, True),
    Row("renamed to another kind", renamed("f1.jsonl", "f1.txt"), MISS, True),
    Row("into a folder below, order kept", renamed("f3.jsonl", "sub/f3.jsonl"), HIT),
    Row("names swapped", swapped_names, MISS, True),
    Row("contents swapped, sizes and dates kept", swapped_contents, MISS, True),
    Row("the folder moved", moved, HIT),
    Row("the folder copied, other dates", copied, HIT),
    Row("a hard link made", linked(os.link, ask=False), HIT),
    Row("asked for by hard links", linked(os.link, ask=True), HIT),
    Row("asked for by links", linked(os.symlink, ask=True), HIT),
    Row("a link put on another file", relinked, MISS, True, linked_file),
    Row("asked for by a link to the folder", linked_folder, HIT),
    Row("asked for by a glob", asked(lambda w: str(w.data / "*.jsonl")), HIT),
    Row("asked for as a list", asked(lambda w: [w.data / f"f{i}.jsonl" for i in range(4)]), HIT),
    Row("asked for in another order", asked(lambda w: tuple(str(w.data / f"f{i}.jsonl") for i in (3, 0, 2, 1))), HIT),
    Row("asked for twice", asked(lambda w: (str(w.data), str(w.data / "f1.jsonl"))), HIT),
    Row("asked for by a list in a file", asked(listed), HIT),
    Row("asked for by a relative path", asked(lambda w: os.path.relpath(w.data)), HIT),
    Row("asked for in part", asked(lambda w: [w.data / f"f{i}.jsonl" for i in (0, 1, 3)]), MISS, True),
    Row("emptied", write("f1.jsonl", lambda data: b""), MISS, True),
    Row("the last line end cut off", write("f1.jsonl", lambda data: data[:-1]), MISS, False),
    Row("the last brace cut off", write("f1.jsonl", lambda data: data[:-2] + b"\n"), MISS, True),
    Row("a blank line appended", write("f1.jsonl", lambda data: data + b"\n"), MISS, False),
    Row("a byte appended", write("f1.jsonl", lambda data: data + b"x"), MISS, False),
    Row("a record appended", write("f1.jsonl", lambda data: data + json_lines(7, 1)), MISS, True),
    Row("a byte order mark", write("f1.jsonl", lambda data: b"\xef\xbb\xbf" + data), MISS, False),
    Row("other line ends", write("f1.jsonl", lambda data: data.replace(b"\n", b"\r\n")), MISS, False),
    Row("a line swapped between files", swapped_lines, MISS, True),
    Row("another field changed", write("f1.jsonl", lambda d: d.replace(b"title 11", b"TITLE 11")), EITHER, False),
    Row("a README.md beside", added("README.md", b"about the data"), HIT),
    Row("a hidden file beside", added(".f9.jsonl", json_lines(9)), HIT),
    Row("a file added", added("f9.jsonl", json_lines(9)), MISS, True),
    Row("a file added in the middle", added("f11.jsonl", json_lines(9)), MISS, True),
    Row("the same file added under another name", added("f11.jsonl", json_lines(1)), MISS, True),
    Row("an empty file added", added("f9.jsonl", b""), MISS, False),
    Row("a file deleted", lambda w: os.unlink(w.data / "f1.jsonl"), MISS, True),
    # Formats
    Row("gzip: compressed again", recompressed, EITHER, False, gzip_files),
    Row("gzip: unpacked", lambda w: [unpack(f) for f in w.data.iterdir()], EITHER, False, gzip_files),
    *(
        row
        for kind in ("csv", "parquet", "arrow")
        for row in (
            Row(
                f"{kind}: the text, same size and date", rewritten_table(kind, word="TEXT"), MISS, True, one_table(kind)
            ),
            Row(f"{kind}: a column beside", rewritten_table(kind, other="OTHER"), EITHER, False, one_table(kind)),
            Row(f"{kind}: another column", optioned(text_field="other"), MISS, True, one_table(kind)),
        )
    ),
    Row(
        "arrow: a nested dictionary, same size and date",
        rewritten_table("feather", word="TEXT"),
        MISS,
        True,
        one_table("feather"),
        {"text_field": "in.text"},
    ),
    # The tokenizer
    Row("tokenizer: two merges swapped", tokenizer(swap_merges), MISS, True),
    Row("tokenizer: merges swapped, same size and date", swap_merges_unseen, MISS, True),
    Row("tokenizer: a token added", tokenizer(add_token), MISS, True),
    Row("tokenizer: lstrip of an added token", tokenizer(set_flag("lstrip", True)), MISS, True, with_added_token),
    Row("tokenizer: normalized", tokenizer(set_flag("normalized", False)), MISS, True, with_added_token),
    Row("tokenizer: single_word", tokenizer(set_flag("single_word", True)), MISS, True, with_added_token),
    Row("tokenizer: indented", tokenizer(lambda body: None, indent=4, ensure_ascii=False), HIT),
    Row("tokenizer: truncation and padding", tokenizer(cut_and_pad), HIT),
    Row("tokenizer: another path", tokenizer_elsewhere, HIT),
    Row("tokenizer: touched", lambda w: os.utime(Path(w.tokenizer) / "tokenizer.json", ns=(EPOCH, EPOCH)), HIT),
    Row("tokenizer: the file in place of the folder", tokenizer_file, HIT, first={"eos": "<|endoftext|>"}),
    Row("tokenizer: an object", tokenizer_object, HIT, first={"eos": "<|endoftext|>"}),
    Row("tokenizer: another eos in its config", another_eos_in_config, MISS, True),
    # Options
    Row("text_field=body", optioned(text_field="body"), MISS, True),
    Row("a template", optioned(template="{title}: {text}"), MISS, True),
    Row("another template", optioned(template="{text}: {title}"), MISS, True, first={"template": "{title}: {text}"}),
    Row("a separator", optioned(separator="##"), MISS, True, text_files),
    Row("another separator", optioned(separator="part"), MISS, True, text_files, {"separator": "##"}),
    Row("format=jsonl for .jsonl", optioned(format="jsonl"), HIT),
    Row("format=lines for .jsonl", optioned(format="lines"), MISS, True),
    Row("eos=!", optioned(eos="!"), MISS, True),
    Row("eos=None", optioned(eos=None), MISS, True),
    Row("eos by its name", optioned(eos="<|endoftext|>"), HIT),
    Row("eos by its id", optioned(eos=0), HIT),
    Row("bos", optioned(bos="<|endoftext|>"), MISS, True),
    Row("special_tokens=text", optioned(special_tokens="text"), MISS, True, special_names),
    Row("special_tokens=parse, which is the default", optioned(special_tokens="parse"), HIT, None, special_names),
    Row("special_tokens=error, and there are none", optioned(special_tokens="error"), HIT),
    Row("workers=2", optioned(workers=2), HIT),
    Row("memory", optioned(memory="1GB"), HIT),
    Row("engine=auto", optioned(engine="auto"), HIT),
    Row("shard_bytes", optioned(shard_bytes="4MB"), MISS),
    Row("shard_bytes as it is by default", optioned(shard_bytes=32_000_000), HIT),
    Row("packed in three ways", packed, HIT),
    Row("TOKENMILL_CACHE in place of cache_dir", in_environment, HIT),
    Row("on_error=raise, and nothing is bad", optioned(on_error="raise"), HIT),
    Row("rehash", optioned(rehash=True), HIT),
    Row("force", optioned(force=True), MISS, False),
]


def unpack(path: Path) -> None:
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()


OLD = [
    "rehash whole cache",
    "rehash whole out",
    "rehash trial cache",
    "rehash trial out",
    "lost manifest",
    "two places forced",
    "two places removed",
]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory, tokenizer_path):
    """A world for every row, its files left alone for long enough to be believed unseen: one wait for all of them."""
    folder = tmp_path_factory.mktemp("worlds")
    made: dict[str, World] = {}
    memory = tempfile.TemporaryDirectory(dir=MEMORY)  # where nothing is written back, nothing changes a date behind us
    for number, row in enumerate([*TABLE, *(Row(name, nothing, HIT) for name in OLD)]):
        root = (Path(memory.name) if row.name in OLD else folder) / str(number)
        (root / "data").mkdir(parents=True)
        shutil.copytree(tokenizer_path, root / "tokenizer")
        made[row.name] = world = World(root, root / "tokenizer", options=dict(row.first))
        row.prepare(world)
        if row.name in OLD:
            world.mapped = Mapped(world.data / "f1.jsonl", b"text 1")
    time.sleep(SETTLED_SECONDS)
    yield made
    for name in OLD:
        made[name].mapped.close()
    memory.cleanup()


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_a_build_is_what_one_from_scratch_would_be(row, worlds, monkeypatch):
    world = worlds[row.name]
    world.store, events = world.build()
    assert "started" in names_of(events)
    before = all_of(world.store)
    row.does(world)
    with monkeypatch.context() as patch:
        if world.options.get("cache_dir", "") is None:
            patch.setenv("TOKENMILL_CACHE", str(world.root / "cache"))
        store, events = world.build()

    assert all_of(store) == scratch(world)
    happened = names_of(events)
    if row.expected == HIT:
        assert "started" not in happened
        assert happened[-1] == "up_to_date"
        assert store.fingerprint == before["fingerprint"]
        assert store.path == world.store.path
    elif row.expected == MISS:
        assert "up_to_date" not in happened
        assert happened[-1] == "finished"
    if row.differs is not None:
        assert (store.fingerprint != before["fingerprint"]) == row.differs
    if world.options.get("force") is None:
        assert all_of(world.store) == before  # who holds the first one is not disturbed


@pytest.fixture
def world(tmp_path, tokenizer_path):
    """A world whose files are fresh: what their dates say is not to be believed yet."""
    (tmp_path / "data").mkdir()
    made = World(tmp_path, tokenizer_path)
    jsonl_files(made)
    return made


def test_every_change_and_back_again(world):
    """What was built once is found again, whatever was built in between."""
    first, _ = world.build()
    original = (world.data / "f1.jsonl").read_bytes()
    (world.data / "f1.jsonl").write_bytes(other_word(original))
    second, _ = world.build()
    (world.data / "f1.jsonl").write_bytes(original)
    third, events = world.build()
    assert names_of(events)[-1] == "up_to_date"
    assert "started" not in names_of(events)
    assert third.path == first.path != second.path


@pytest.fixture
def mapped(world):
    """A file of that world, to be written to unseen."""
    file = Mapped(world.data / "f1.jsonl", b"text 1")
    yield file
    file.close()


@pytest.mark.parametrize("trial", [{}, {"max_rows": 6}], ids=["whole", "trial"])
def test_a_change_within_the_tick_of_the_clock(world, mapped, trial):
    world.options |= trial
    first, _ = world.build()
    mapped.put_unseen(b"T")
    second, events = world.build()
    assert all_of(second) == scratch(world)
    assert second.fingerprint != first.fingerprint
    assert names_of(events)[-1] == "finished"


@pytest.mark.parametrize("place", ["cache", "out"])
@pytest.mark.parametrize("trial", ["whole", "trial"])
def test_rehash_believes_no_date(worlds, trial, place):
    """A file that nobody has touched for long, as far as its dates go, with another content."""
    world = worlds[f"rehash {trial} {place}"]
    world.options |= {"max_rows": 6} if trial == "trial" else {}
    where = {} if place == "cache" else {"out": world.root / "out", "cache_dir": None}
    fingerprint = world.build(**where)[0].fingerprint
    world.mapped.put_unseen(b"T")
    second, _ = world.build(rehash=True, **where)
    assert all_of(second) == scratch(world)
    assert second.fingerprint != fingerprint
    third, events = world.build(rehash=True, **where)
    assert third.fingerprint == second.fingerprint
    assert trial == "trial" or names_of(events)[-1] == "up_to_date"


def test_written_twice_at_once(world):
    """Write, build, write as many bytes, build; with no pause, over and over."""
    path = world.data / "f1.jsonl"
    original = path.read_bytes()
    seen = set()
    for turn in range(5):
        path.write_bytes(original.replace(b"text 1 of", b"text %d of" % turn))
        store, _ = world.build()
        assert all_of(store) == scratch(world)
        seen.add(store.fingerprint)
    assert len(seen) == 5


@pytest.mark.parametrize("place", ["cache", "out"])
def test_bad_rows_left_out_before_stop_a_build_that_is_to_raise(world, place):
    bad_rows(world)
    where = {} if place == "cache" else {"out": world.root / "out", "cache_dir": None}
    first, _ = world.build(**where)
    for _ in range(2):
        with pytest.raises(DocumentError, match=r"f1\.jsonl, row 3"):
            world.build(on_error="raise", **where)
    again, events = world.build(**where)
    assert "started" not in names_of(events)
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("place", ["cache", "out"])
def test_special_tokens_parsed_before_stop_a_build_that_refuses_them(world, place):
    special_names(world)
    where = {} if place == "cache" else {"out": world.root / "out", "cache_dir": None}
    first, _ = world.build(**where)
    for _ in range(2):
        with pytest.raises(DocumentError, match=r"f0\.jsonl, row 0"):
            world.build(special_tokens="error", **where)
    again, events = world.build(**where)
    assert "started" not in names_of(events)
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("place", ["cache", "out"])
def test_what_was_left_out_goes_by_the_names_of_now(world, place):
    """A renamed file changes no token; where its bad rows are is said by its new name all the same."""
    bad_rows(world)
    where = {} if place == "cache" else {"out": world.root / "out", "cache_dir": None}
    world.build(**where)
    os.rename(world.data / "f1.jsonl", world.data / "f1-new.jsonl")
    store, _ = world.build(**where)
    assert quarantine(store) == [(str(world.data / "f1-new.jsonl"), 3, "bad json")]


def test_another_field_where_the_manifest_was_lost(worlds):
    """Without a manifest nobody knows what was asked for before; what was seen in the files must not stand for it."""
    world = worlds["lost manifest"]
    out = {"out": world.root / "out", "cache_dir": None}
    world.build(**out)
    (world.root / "out" / "manifest.json").unlink()
    world.options["text_field"] = "body"
    store, _ = world.build(**out)
    assert all_of(store) == scratch(world)


@pytest.mark.parametrize("how", ["forced", "removed"])
def test_the_same_files_in_two_places(worlds, how):
    """Who asks is told the names they asked by, also where the store was made again for another."""
    world = worlds[f"two places {how}"]
    first, _ = world.build()
    before = all_of(first)
    path = first.path
    del first  # which is in use until then
    shutil.copytree(world.data, world.root / "copy")
    if how == "removed":
        shutil.rmtree(path)
    world.source = str(world.root / "copy")
    other, _ = world.build(force=how == "forced")
    assert other.path == path
    assert other.locate(0).file == str(world.root / "copy" / "f0.jsonl")
    world.source = None
    again, events = world.build()
    assert names_of(events)[-1] == "up_to_date"
    assert all_of(again) == before


@pytest.mark.parametrize("order", ["trial first", "whole first"])
@pytest.mark.parametrize("limit", [{"max_rows": 12}, {"max_documents": 12}, {"max_tokens": 10**9}, {"max_rows": 99}])
def test_a_trial_never_poses_as_the_whole(world, order, limit):
    """Not even one that has every document."""
    asked = [limit, {}] if order == "trial first" else [{}, limit]
    one, two = (world.build(**options)[0] for options in asked)
    assert one.path != two.path
    for options, store in zip(asked, (one, two), strict=True):
        again, _ = world.build(**options)
        assert again.path == store.path
        assert all_of(again) == scratch(world, **options)
        assert {name: again._manifest.options[name] for name in limit} == {name: options.get(name) for name in limit}
    assert [ids.tolist() for ids in one] == [ids.tolist() for ids in two]


def test_a_trial_with_other_limits_is_another(world):
    stores = [world.build(**limit)[0] for limit in ({"max_rows": 2}, {"max_rows": 3}, {"max_documents": 3})]
    assert len({store.path for store in stores}) == 3
    assert [len(store) for store in stores] == [2, 3, 3]
    again, _ = world.build(max_rows=3)
    assert again.path == stores[1].path


def test_streams_are_known_by_what_they_hold(world):
    """A stream has to be read to know what it holds; what is known is not encoded again."""
    texts = [f"document {number}" for number in range(50)]
    world.source = iter(texts)
    first, _ = world.build()
    world.source = iter(list(texts))
    second, events = world.build()
    assert "shard_done" not in names_of(events)
    assert second.path == first.path
    world.source = iter([*texts[:-1], "document xx"])
    third, events = world.build()
    assert "shard_done" in names_of(events)
    assert third.fingerprint != first.fingerprint
    world.source = pa.table({"text": texts})
    fourth, _ = world.build()
    assert fourth.fingerprint == first.fingerprint


def test_a_cache_among_the_files_it_is_made_from(world):
    """What is kept there is no text."""
    place = {"cache_dir": world.data / "cache"}
    first, _ = world.build(**place)
    again, events = world.build(**place)
    assert names_of(events)[-1] == "up_to_date"
    assert again.path == first.path
    assert len(again) == 12


def test_names_that_are_no_text(world):
    """File names are bytes; these are not UTF-8, or hold what a list might be cut at."""
    os.rename(world.data / "f0.jsonl", os.fsencode(world.data) + b"/\xff one.jsonl")
    os.rename(world.data / "f1.jsonl", world.data / 'two\n"two".jsonl')
    first, _ = world.build()
    again, events = world.build()
    assert "started" not in names_of(events)
    assert again.path == first.path
    os.rename(os.fsencode(world.data) + b"/\xff one.jsonl", os.fsencode(world.data) + b"/\xfe one.jsonl")
    moved, events = world.build()
    assert "started" not in names_of(events)
    assert all_of(moved) == scratch(world)
    assert {os.fsencode(os.path.basename(moved.locate(i).file)) for i in range(12)} >= {b"\xfe one.jsonl"}


def test_a_tokenizer_that_changes_in_memory(world):
    live = tokenizers.Tokenizer.from_file(str(Path(world.tokenizer) / "tokenizer.json"))
    world.tokenizer, world.options = live, {"eos": None}
    first, _ = world.build()
    live.enable_truncation(2)
    live.enable_padding(length=9)
    again, events = world.build()
    assert "started" not in names_of(events)
    assert again.path == first.path
    live.add_tokens(["text 1 of"])
    other, _ = world.build()
    assert other.fingerprint != first.fingerprint
    assert all_of(other) == scratch(world)


def test_stores_of_one_cache_do_not_disturb_each_other(world):
    """Several things asked for in turn from one cache: each is built once."""
    questions = [
        {},
        {"eos": None},
        {"text_field": "body"},
        {"text_field": "body", "eos": None},
        {"template": "{title}: {text}"},
        {"max_rows": 5},
        {"max_rows": 5, "text_field": "body"},
        {"shard_bytes": "1MB"},
    ]
    first = [world.build(**options)[0] for options in questions]
    assert len({store.path for store in first}) == len(questions)
    for options, store in zip(questions, first, strict=True):
        again, events = world.build(**options)
        assert "started" not in names_of(events) or "max_rows" in options, options
        assert again.path == store.path
        assert all_of(again) == scratch(world, **options), options
