"""Documents between separators in plain text: whose the line breaks around a separator are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill as tm
from tokenmill import events
from tokenmill.cli import main
from tokenmill.errors import MismatchError
from tokenmill.reading import Piece, read_piece, split
from tokenmill.reading.separators import large_document, separator_in

END = "<|endoftext|>"


def read_all(source, pieces=None, block_bytes=1 << 20) -> tuple[list[str], int]:
    """The documents and the number of rows of the one file of a source. Documents that come in parts are joined."""
    texts, rows, is_open = [], 0, False
    for piece in pieces or [Piece(source.files[0])]:
        for block in read_piece(piece, source, block_bytes):
            for text in block.values.to_pylist():
                if is_open:
                    texts[-1] += text
                else:
                    texts.append(text)
                is_open = False
            is_open, rows = block.unfinished, rows + block.rows
    return texts, rows


def documents(path, **options):
    return read_all(tm.read(path, **options))[0]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_line_break_before_and_after_a_separator_belongs_to_it(tmp_path, line_end):
    """The layout of TinyStories: each story ends in a line break, and the separator has a line of its own."""
    path = tmp_path / "stories.txt"
    text = f"One.\nTwo.\n{END}\nThree.\n{END}\n"
    path.write_bytes(text.replace("\n", line_end).encode())
    assert documents(path, separator=END) == [f"One.{line_end}Two.", "Three."]
    kept = [f"One.{line_end}Two.{line_end}", f"{line_end}Three.{line_end}", line_end]
    assert documents(path, separator=END, separator_newlines="keep") == kept


def test_one_line_break_and_no_more_belongs_to_a_separator(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(f"\na\n\n{END}\n\nb\r{END}\n{END}\n\n{END}c\n".encode())
    assert documents(path, separator=END) == ["\na\n", "\nb\r", "c\n"]


def test_a_separator_with_line_breaks_of_its_own_takes_no_others(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n\n---\n\nb\n---\nc\n")
    assert documents(path, separator="\n---\n") == ["a\n", "\nb", "c\n"]
    assert documents(path, separator="\n---") == ["a\n", "\nb", "c\n"]


def expected(content: str, separator: str) -> list[str]:
    """The documents of a text, one after the other."""
    parts = content.split(separator)
    for i, part in enumerate(parts):
        if i and not separator.endswith("\n"):
            part = part.removeprefix("\r\n" if part.startswith("\r\n") else "\n")
        if i < len(parts) - 1 and not separator.startswith("\n"):
            part = part.removesuffix("\r\n" if part.endswith("\r\n") else "\n")
        parts[i] = part
    return [part for part in parts if part]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("separated")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab\n\r中"), max_size=12)),
    st.sampled_from([END, "--", "中", "\n--", "--\n"]),
    st.integers(1, 60),
    st.integers(1, 60),
)
def test_line_breaks_at_any_border_of_pieces_and_blocks(folder, texts, separator, piece_bytes, block_bytes):
    path = folder / "any.txt"
    content = separator.join(texts)
    path.write_bytes(content.encode())
    source = tm.read(path, separator=separator)
    whole = read_all(source)
    assert whole[0] == expected(content, separator)
    pieces = split(source.files[0], source, piece_bytes)
    assert read_all(source, pieces, block_bytes) == whole


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "\n", "\r\n", "\r"]), st.integers(20, 40)), min_size=1, max_size=5),
    st.sampled_from(["", "\n", "\r\n", "\n\n", "\r"]),
    st.integers(1, 30),
)
def test_line_breaks_around_documents_that_come_in_parts(folder, documents, end, block_bytes):
    """A long document is passed on in parts before its end is seen."""
    path = folder / "long.txt"
    content = END.join(f"{start}{'x' * length}{end}" for start, length in documents)
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenmill.reading.formats.text.LONG_TEXT", 16)
        assert read_all(tm.read(path, separator=END), None, block_bytes)[0] == expected(content, END)


def test_the_digest_of_a_file_says_whose_the_line_breaks_are(tmp_path):
    """A store that was built with the line breaks is not up to date for a build without them, nor the reverse."""
    path = tmp_path / "a.txt"
    path.write_text(f"one\n{END}\ntwo")
    build = {"workers": 0, "progress": "quiet", "cache_dir": tmp_path / "cache", "separator": END}
    stores = [tm.build(path, "bytes", separator_newlines=newlines, **build) for newlines in ("strip", "keep", "strip")]
    assert [len(store[0]) for store in stores] == [4, 5, 4]
    tm.build(path, "bytes", tmp_path / "out", separator=END, workers=0, progress="quiet")
    with pytest.raises(MismatchError, match="separator_newlines: was 'strip', now None"):
        tm.build(path, "bytes", tmp_path / "out", separator=END, separator_newlines="keep", workers=0, progress="quiet")


def test_a_store_of_separated_text_can_be_repaired(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"one\n{END}\ntwo\n{END}\n")
    for newlines in ("strip", "keep"):
        out = tmp_path / newlines
        store = tm.build(path, "bytes", out, separator=END, separator_newlines=newlines, workers=0, progress="quiet")
        shard = next((out / "shards").glob("*.ends.npy"))
        damaged = bytearray(shard.read_bytes())
        damaged[-1] ^= 1
        shard.write_bytes(damaged)
        assert main(["verify", str(out), "--repair"]) == 0
        assert tm.open(out).verify() == []
        assert tm.open(out).fingerprint == store.fingerprint


# Large files without a separator


LINE = "Once upon a time there was a dog.\n"


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        (LINE + "<|endoftext|>\n", "<|endoftext|>"),
        (LINE + "<|end_of_text|>", "<|end_of_text|>"),
        (LINE[:-1] + "</s>\n", "</s>"),
        ("a word</s> in HTML " + LINE, None),
        (LINE + "\n-----\n\n", "\n-----\n"),
        (LINE.replace("\n", "\r\n") + "***\r\n", "\r\n***\r\n"),
        (LINE + "\n", "\n\n"),
        (LINE.replace("\n", "\r\n\r\n"), "\r\n\r\n"),
        (LINE, None),
    ],
)
def test_the_separator_that_is_seen_in_a_text(text, separator):
    seen = separator_in((text * 20).encode())
    assert (seen and seen[0]) == separator


def warnings_of(source, out, **options) -> list[events.LargeDocument]:
    seen = []
    tm.build(source, "bytes", out, engine="bytes", workers=0, progress=seen.append, **options)
    return [event for event in seen if isinstance(event, events.LargeDocument)]


def test_a_build_warns_once_of_a_large_file_that_it_takes_for_one_document(tmp_path, capsys):
    stories = (LINE * 30 + f"{END}\n") * 1100
    for name in ("a.txt", "b.txt"):
        (tmp_path / f"in/{name}").parent.mkdir(exist_ok=True)
        (tmp_path / f"in/{name}").write_text(stories + "more" * (name == "b.txt"))
    (warning,) = warnings_of(tmp_path / "in", tmp_path / "out")
    assert (warning.file, warning.separator) == (str(tmp_path / "in/b.txt"), END)
    assert warning.source_bytes == (tmp_path / "in/b.txt").stat().st_size
    assert warning.count == stories.encode()[: 1 << 20].count(END.encode())
    assert "(1.1 MB) is read as one document" in warning.message
    assert f"--separator '{END}'" in warning.message
    assert '"large_document"' in (tmp_path / "out/events.jsonl").read_text()
    assert warnings_of(tmp_path / "in", tmp_path / "out") == []  # up to date
    assert warnings_of(tmp_path / "in", tmp_path / "split", separator=END) == []
    tm.build(tmp_path / "in/a.txt", "bytes", tmp_path / "shown", engine="bytes", workers=0, progress="plain")
    assert f"warning: {tmp_path}/in/a.txt (1.1 MB) is read as one document" in capsys.readouterr().err


def test_an_estimate_names_the_separator_too(tmp_path):
    (tmp_path / "a.txt").write_text((LINE * 30 + f"{END}\n") * 1100)
    found = tm.estimate(tmp_path / "a.txt", "bytes", engine="bytes", sample="128kB")
    (warning,) = [each for each in found.warnings if each.kind == "one document"]
    assert f"--separator '{END}'" in warning.remedy
    assert "is read as one document" in warning.what


def test_small_files_and_files_without_separators_are_documents(tmp_path):
    (tmp_path / "small.txt").write_text((LINE + f"{END}\n") * 100)
    (tmp_path / "lines.txt").write_text(LINE * 40_000)
    assert warnings_of(tmp_path / "small.txt", tmp_path / "out1") == []
    assert warnings_of(tmp_path / "lines.txt", tmp_path / "out2") == []


def test_a_huge_file_is_named_in_any_case(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.reading.separators.HUGE", 1 << 20)
    (tmp_path / "lines.txt").write_text(LINE * 40_000)
    (warning,) = warnings_of(tmp_path / "lines.txt", tmp_path / "out")
    assert warning.separator is None
    assert "--format lines" in warning.message


def test_a_separator_that_is_misspelled_is_noticed(tmp_path):
    """A large file without the separator that was given, and with a known one."""
    path = tmp_path / "stories.txt"
    path.write_text("a story\n<|endoftext|>\n" * 60_000)
    found = large_document(tm.read(path, separator="<|endoftxt|>"))
    assert found is not None
    assert (found.separator, found.file.path) == ("<|endoftext|>", str(path))
    assert large_document(tm.read(path, separator="<|endoftext|>")) is None
