"""What the pages show about datasets on the Hugging Face Hub: run against a Hub on this machine, and compared with the table."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from hub_datasets import as_the_hub, parquet, publish
from hub_server import hub_server
from pages import run_commands, run_here

import tokenmill as tm
from tokenmill.known_datasets import KNOWN

DOCS = Path(__file__).parents[2] / "docs"
README = b"---\nconfigs:\n- config_name: sample-10BT\n  data_files: [{split: train, path: 'sample/10BT/*'}]\n---\n"


def test_the_section_on_datasets_runs(tmp_path, tokenizer_path, proved):
    page = (DOCS / "scale.md").read_text("utf-8")
    section = page.split("## Datasets on the Hugging Face Hub\n")[1].split("\n## ")[0]
    shutil.copytree(tokenizer_path, tmp_path / "gpt2")
    shutil.copytree(proved, tmp_path / "cache")
    files = {
        f"sample/10BT/{part}.parquet": parquet(*(f"Row {row} of {part}. " * 30 for row in range(90)))
        for part in range(2)
    }
    with hub_server({}) as hub, as_the_hub(hub, tmp_path):
        publish(hub, "HuggingFaceFW/fineweb-edu", {"README.md": README, **files}, lfs=True)
        said = run_commands(section, tmp_path).said
        run_here("\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)), tmp_path)
    assert "up to date" in said[3]
    assert "2 files of the dataset" in said[5]
    assert len(tm.open(tmp_path / "edu")) == 180
    assert tm.open(tmp_path / "streamed").fingerprint == tm.open(tmp_path / "edu").fingerprint


def test_the_page_lists_every_short_name():
    page = (DOCS / "building.md").read_text("utf-8")
    for name, known in KNOWN.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
        for word in (known.repo, known.config, known.files, known.split, known.about):
            assert word is None or word in row
        assert (known.text_field == "text") != (f"field `{known.text_field}`" in row)
