"""gigatoken with a stand-in for the library `awkward`: the same ids, and only in processes of tokenmill's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.engines import engine_version, make_engine
from tokenmill.encoding.engines.light_awkward import TRIED_VERSIONS
from tokenmill.encoding.selection.probes import probes

SCRIPT = """
import sys
from tokenmill.child_process import claim_process
claim_process()
import pyarrow as pa
from tokenmill.encoding.api import load_tokenizer
from tokenmill.encoding.engines import make_engine
engine = make_engine("gigatoken", load_tokenizer(sys.argv[1]).definition)
with pa.ipc.open_file(sys.argv[2]) as file:
    ids, offsets = engine.encode(file.get_batch(0).column(0).slice(3))
print([len(ids), ids.tolist()[::97], offsets.tolist()[-50:], str(ids.dtype), str(offsets.dtype)])
assert "awkward.contents" not in sys.modules, "the library was imported"
"""


def test_the_installed_version_was_tried():
    """A newer gigatoken works with the library itself, and slower to start: try it with the stand-in, and list it."""
    assert engine_version("gigatoken") in TRIED_VERSIONS


@pytest.mark.parametrize("texts", ["probes", "empty ones", "none"])
def test_the_same_ids(tokenizer_path, tmp_path, texts):
    definition = load_tokenizer(tokenizer_path).definition
    values = {
        "probes": ["a", "b", "c", *probes(definition)],
        "empty ones": ["a", "b", "c", "", "x", ""],
        "none": ["a"] * 3,
    }
    array = pa.array(values[texts], pa.large_string())
    path = tmp_path / "texts.arrow"
    with pa.ipc.new_file(path, pa.schema([("text", pa.large_string())])) as file:
        file.write_batch(pa.record_batch([array], ["text"]))
    command = [sys.executable, "-c", SCRIPT, tokenizer_path, path]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    ids, offsets = make_engine("gigatoken", definition).encode(array.slice(3))
    expected = [len(ids), ids.tolist()[::97], offsets.tolist()[-50:], str(ids.dtype), str(offsets.dtype)]
    assert json.loads(ran.stdout.replace("'", '"')) == expected


def test_a_users_process_keeps_the_library(tokenizer_path):
    make_engine("gigatoken", load_tokenizer(tokenizer_path).definition)
    assert "awkward.contents" in sys.modules
