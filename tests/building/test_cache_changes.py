"""Why there is something to build, in words: said before the work, and only where there is something to say."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cache_world import MEMORY, Mapped, World, add_token, jsonl_files, names_of, swap_merges


@pytest.fixture
def world(tokenizer_path):
    """Four files and a tokenizer that may be changed."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        root = Path(name)
        (root / "data").mkdir()
        shutil.copytree(tokenizer_path, root / "tokenizer")
        made = World(root, root / "tokenizer")
        jsonl_files(made)
        yield made


def reasons(world: World, place: str = "cache", **options: Any) -> str:
    """What the next build gives as reasons, one a line; nothing where it gives none."""
    where = {"out": world.root / "out", "cache_dir": None} if place == "out" else {}
    _, events = world.build(**where, **options)
    told = [event for event in events if event.name == "explained"]
    assert len(told) <= 1
    if told:
        happened = names_of(events)
        assert "started" not in happened[: happened.index("explained")]
        assert all(told[0].reasons)
        return "\n".join(told[0].reasons)
    return ""


def add_tokens(world: World, *names: str) -> None:
    def change(body: dict[str, Any]) -> None:
        size = len(body["model"]["vocab"])
        for number, name in enumerate(names):
            add_token(body, id=size + number, content=name, special=True, normalized=False)

    world.edit_tokenizer(change)


PLACES = pytest.mark.parametrize("place", ["cache", "out"])
COST = r"^rebuilding {}, [\d.]+ k?B, about \d+ s$"


@PLACES
def test_nothing_is_said_where_nothing_was_before(world, place):
    assert reasons(world, place) == ""
    assert reasons(world, place) == ""


def test_nothing_is_said_of_other_corpora(world):
    """Neither of one that has nothing to do with it, nor of one that looks the same."""
    reasons(world)
    shutil.copytree(world.data, world.root / "other")
    (world.root / "other" / "f1.jsonl").write_text('{"text": "something else"}\n')
    world.source = str(world.root / "other")
    assert reasons(world, eos=None) == ""
    assert not re.search("changed|added|removed|renamed|was", reasons(world, force=True, eos=None))


@PLACES
def test_files_that_changed(world, place):
    for number in range(4, 10):
        shutil.copyfile(world.data / "f0.jsonl", world.data / f"f{number}.jsonl")
    reasons(world, place)
    for number in (2, 4, 7):
        (world.data / f"f{number}.jsonl").write_text(json.dumps({"text": f"another text {number}"}) + "\n")
    said = reasons(world, place)
    assert re.search(r"^3 of 10 files changed: .*f2\.jsonl, .*f4\.jsonl, .*f7\.jsonl$", said, re.M)
    assert re.search(COST.format("3 files"), said, re.M)
    for number in range(4):
        (world.data / f"f{number}.jsonl").write_text(json.dumps({"text": f"a third text {number}"}) + "\n")
    said = reasons(world, place)
    assert re.search(r"^4 of 10 files changed: .*f0\.jsonl, .*f1\.jsonl, .*f2\.jsonl, \.\.\.$", said, re.M)


@PLACES
def test_files_that_changed_but_for_their_dates(world, place):
    """Written through memory: nothing but reading it tells."""
    mapped = Mapped(world.data / "f1.jsonl", b"text 1")
    reasons(world, place)
    mapped.put_unseen(b"T")
    said = reasons(world, place)
    mapped.close()
    assert re.search(r"^1 of 4 files changed: .*f1\.jsonl$", said, re.M)


@PLACES
def test_equal_files_removed(world, place):
    """Files of the same content are counted one by one."""
    for name in ("copy1.jsonl", "copy2.jsonl", "copy3.jsonl"):
        (world.data / name).write_text('{"text": "the same"}\n')
    reasons(world, place)
    os.rename(world.data / "copy1.jsonl", world.data / "renamed.jsonl")
    os.unlink(world.data / "copy2.jsonl")
    os.unlink(world.data / "copy3.jsonl")
    said = reasons(world, place)
    assert re.search(r"^1 file renamed: copy1\.jsonl -> renamed\.jsonl$", said, re.M)
    assert re.search(r"^2 files removed: .*copy2\.jsonl, .*copy3\.jsonl$", said, re.M)


@PLACES
def test_files_added_removed_and_renamed(world, place):
    reasons(world, place)
    (world.data / "f9.jsonl").write_text('{"text": "new"}\n')
    said = reasons(world, place)
    assert re.search(r"^1 file added: .*f9\.jsonl$", said, re.M)
    assert re.search(COST.format("1 file"), said, re.M)
    assert "changed" not in said
    os.unlink(world.data / "f0.jsonl")
    said = reasons(world, place)
    assert re.search(r"^1 file removed: .*f0\.jsonl$", said, re.M)
    assert "nothing to tokenize" in said
    os.rename(world.data / "f1.jsonl", world.data / "z.jsonl")
    said = reasons(world, place)
    assert re.search(r"^1 file renamed: f1\.jsonl -> z\.jsonl$", said, re.M)
    assert "nothing to tokenize" in said
    assert not re.search("added|removed|changed", said)


@PLACES
def test_all_that_happened_is_said(world, place):
    reasons(world, place)
    (world.data / "f9.jsonl").write_text('{"text": "new"}\n')
    (world.data / "f2.jsonl").write_text('{"text": "changed"}\n')
    os.unlink(world.data / "f0.jsonl")
    said = reasons(world, place)
    for line in (r"1 of 4 files changed: .*f2\.jsonl", r"1 file added: .*f9\.jsonl", r"1 file removed: .*f0\.jsonl"):
        assert re.search(f"^{line}$", said, re.M)
    assert re.search(COST.format("2 files"), said, re.M)


@PLACES
@pytest.mark.parametrize("workers", [0, 1])
def test_a_large_file_that_did_not_change(world, place, workers):
    """However its pieces were done."""
    lines = [json.dumps({"text": f"row {row} {'word ' * (row % 7)}"}) for row in range(600)]
    (world.data / "large.jsonl").write_text("\n".join(lines))
    world.options |= {"shard_bytes": "4KB", "workers": workers}
    reasons(world, place)
    (world.data / "f9.jsonl").write_text('{"text": "new"}\n')
    said = reasons(world, place)
    assert re.search(r"^1 file added: .*f9\.jsonl$", said, re.M)
    assert "changed" not in said
    os.rename(world.data / "large.jsonl", world.data / "a.jsonl")
    said = reasons(world, place)
    assert re.search(r"^1 file renamed: large\.jsonl -> a\.jsonl$", said, re.M)
    assert "nothing to tokenize" in said


def test_tokens_that_were_added(world):
    reasons(world)
    add_tokens(world, "<|im_start|>", "<|im_end|>")
    said = reasons(world)
    assert re.search(r"\b2 added tokens differ \(<\|im_start\|>, <\|im_end\|>\)", said)
    assert "building 4 files" in said
    add_tokens(world, *(f"<|{number}|>" for number in range(5)))
    said = reasons(world)
    assert re.search(r"\b5 added tokens differ \(<\|0\|>, <\|1\|>, <\|2\|>, \.\.\.\)", said)  # by the nearest of both


def test_a_flag_of_a_token(world):
    reasons(world)
    world.edit_tokenizer(lambda body: body["added_tokens"][0].update(lstrip=True))
    assert re.search(r"\b1 added token differs \(<\|endoftext\|>\)", reasons(world))


def test_merges(world):
    reasons(world)
    world.edit_tokenizer(swap_merges)
    said = reasons(world)
    assert re.search(r"\b2 merges differ\b", said)
    assert "added token" not in said
    assert "vocabulary" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"text_field": "body"}, r"^text_field: was 'text', now 'body'$"),
        ({"template": "{title}: {text}"}, r"^template: was None, now '{title}: {text}'$"),
        ({"eos": None}, r"^eos: was .*(0|<\|endoftext\|>).*, now None$"),
        ({"eos": "!"}, r"^eos: was .*(0|<\|endoftext\|>).*, now .+$"),
        ({"bos": "<|endoftext|>"}, r"^bos: was None, now .+$"),
        ({"special_tokens": "text"}, r"special.*was 'parse', now 'text'"),
        ({"shard_bytes": "4MB"}, r"^shard_bytes: was .*32.*, now .*4.*$"),
        ({"max_rows": 2}, r"^max_rows: was None, now 2$"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_option(world, options, said):
    reasons(world)
    told = reasons(world, **options)
    assert re.search(said, told, re.M), told
    assert re.search(r"\bbuilding 4 files, [\d.]+ k?B, about \d+ s$|\btrial\b", told, re.M), told
    assert reasons(world) == ""
    assert "max_rows" in options or reasons(world, **options) == ""


def test_the_nearest_of_earlier_builds_is_compared_with(world):
    """What differs least is what was changed."""
    reasons(world, eos=None, bos="!", shard_bytes="4MB")
    reasons(world, eos=None)
    reasons(world, eos=None, text_field="body", bos="!")
    said = reasons(world, eos="!")
    assert re.search(r"^eos: ", said, re.M)
    assert not re.search("bos|text|shard_bytes", said)


def test_a_tokenizer_by_another_name_is_no_reason(world):
    reasons(world)
    shutil.copytree(Path(world.tokenizer), world.root / "another")
    world.tokenizer = world.root / "another"
    (world.data / "f1.jsonl").write_text('{"text": "changed"}\n')
    said = reasons(world)
    assert "1 of 4 files changed" in said
    assert not re.search(r"^tokenizer|added token|was", said, re.M)


def test_another_tokenizer_and_other_files_at_once(world):
    reasons(world)
    add_tokens(world, "<|im_start|>", "<|im_end|>")
    (world.data / "f1.jsonl").write_text('{"text": "edited since"}\n')
    (world.data / "f2.jsonl").unlink()
    said = reasons(world).splitlines()
    assert said[0] == "tokenizer: 2 added tokens differ (<|im_start|>, <|im_end|>)"
    assert said[1] == f"1 of 3 files changed: {world.data / 'f1.jsonl'}"
    assert said[2] == f"1 file removed: {world.data / 'f2.jsonl'}"
    assert re.fullmatch(r"building 3 files, [\d.]+ k?B, about \d+ s", said[3])


def test_a_file_that_failed_is_tried_again(world):
    """It did not change, and nobody says that it did."""
    broken = world.data / "f9.jsonl.gz"
    broken.write_bytes(b"no gzip at all")
    reasons(world)
    said = reasons(world)
    assert f"1 file tried again: {broken}" in said
    assert "changed" not in said


def test_a_trial_says_nothing_of_the_whole(world):
    reasons(world, max_documents=1)
    assert reasons(world) == ""
    assert "max_documents: was None, now 2" in reasons(world, max_documents=2)
