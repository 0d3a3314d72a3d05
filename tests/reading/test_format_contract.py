"""Every format of the package passes the conformance suite."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from reading_files import pack, separated, write_arrow

from tokenmill.reading.formats import REGISTERED, get_format
from tokenmill.testing.formats import FormatTests


def as_bytes(texts):
    return [text if isinstance(text, bytes) else text.encode() for text in texts]


def text_table(texts):
    """A table with a text column, or a binary one if some texts are bytes."""
    is_binary = any(isinstance(text, bytes) for text in texts)
    column = pa.array(as_bytes(texts), pa.large_binary()) if is_binary else pa.array(texts, pa.string())
    return pa.table({"id": list(range(len(texts))), "text": column})


class TestText(FormatTests):
    suffix = ".txt"
    texts = ("One document\r\nof several lines, é 中\n",)
    one_document = True
    empty = ("",)
    detects_truncation = False

    def write(self, texts, path):
        path.write_bytes(b"".join(as_bytes(texts)))


class TestSeparatedText(FormatTests):
    suffix = ".txt"
    options = {"separator": "\n<|doc|>\n"}  # noqa: RUF012
    detects_truncation = False

    def write(self, texts, path):
        path.write_bytes(b"\n<|doc|>\n".join(as_bytes(texts)))


class TestLines(FormatTests):
    suffix = ".txt"
    options = {"format": "lines"}  # noqa: RUF012
    detects_truncation = False

    def write(self, texts, path):
        path.write_bytes(b"".join(text + b"\n" for text in as_bytes(texts)))


class TestJsonLines(FormatTests):
    suffix = ".jsonl"
    detects_truncation = False

    def body(self, texts):
        lines = []
        for i, text in enumerate(texts):
            quoted = b'"' + text + b'"' if isinstance(text, bytes) else json.dumps(text).encode()
            lines.append(b'{"id": %d, "text": %s}\n' % (i, quoted))
        return b"".join(lines)

    def write(self, texts, path):
        path.write_bytes(self.body(texts))


class TestCompressedJsonLines(TestJsonLines):
    suffix = ".jsonl.gz"
    detects_truncation = True

    def write(self, texts, path):
        path.write_bytes(pack(self.body(texts), ".gz"))


class TestJsonArray(TestJsonLines):
    """One array on several lines, with white space and line breaks in all places that JSON has for them."""

    suffix = ".json"

    def body(self, texts):
        objects = super().body(texts).splitlines()
        return (
            b"\xef\xbb\xbf\n [\n"
            + b" ,\r\n ".join(each.replace(b', "text', b' ,\n\t"text') for each in objects)
            + b"\n]\n"
        )


class TestJsonArrayOnOneLine(TestJsonLines):
    def body(self, texts):
        return b"[" + b", ".join(super().body(texts).splitlines()) + b"]"


class TestCompressedJsonArray(TestCompressedJsonLines):
    def body(self, texts):
        return b"[" + b",\n".join(super().body(texts).splitlines()) + b"]"


class TestIndentedJson(TestJsonLines):
    """Objects one after the other, on several lines each."""

    def body(self, texts):
        objects = super().body(texts).splitlines()
        return b"".join(b"{\n" + each[1:-1].replace(b', "text', b',\r\n  "text') + b"\n}\n" for each in objects)


class TestParquet(FormatTests):
    suffix = ".parquet"

    def write(self, texts, path):
        pq.write_table(text_table(texts), path, row_group_size=7)


class TestArrowFile(FormatTests):
    suffix = ".arrow"

    def write(self, texts, path):
        write_arrow(path, text_table(texts), 7)


class TestArrowStream(FormatTests):
    suffix = ".arrow"

    def write(self, texts, path):
        write_arrow(path, text_table(texts), 7, stream=True)


class TestCsv(FormatTests):
    suffix = ".csv"
    delimiter = ","
    detects_truncation = False

    def write(self, texts, path):
        strings = [text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text for text in texts]
        path.write_bytes(separated(strings, self.delimiter))


class TestTsv(TestCsv):
    suffix = ".tsv"
    delimiter = "\t"


def test_every_registered_format_is_there():
    """The table names a module that has the format."""
    for name in REGISTERED:
        assert get_format(name).name == name


def test_pytest_is_not_imported_by_the_package():
    script = "import sys, tokenmill, tokenmill.reading; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
