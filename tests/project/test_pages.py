"""Pages that are written by scripts are up to date; how-tos run; links and quoted errors exist."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.__main__ import main as benchmarks
from pages import load_script, run_commands, run_here

import tokenmill as tm

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks" / "recorded"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def script(name: str):
    return load_script(ROOT / "scripts" / f"{name}.py")


PUBLIC = [name for name in dir(tm) if not name.startswith("_")]


@pytest.mark.parametrize(("page", "writer"), [("api.md", "api_page"), ("benchmarks.md", "benchmark_page")])
def test_written_pages_are_up_to_date(page, writer):
    assert (ROOT / "docs" / page).read_text("utf-8") == script(writer).page(), f"run scripts/{writer}.py"


def test_the_api_page_has_every_public_name():
    page, written = (ROOT / "docs" / "api.md").read_text("utf-8"), script("api_page")
    for name in PUBLIC:
        assert f"\n## tm.{name}\n" in page
    classes = {name: getattr(tm, name) for name in PUBLIC if inspect.isclass(getattr(tm, name))}
    for title, owner in {
        **{f"tm.{name}": each for name, each in classes.items()},
        **written.returned_classes(),
    }.items():
        section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
        for name in [name for name in vars(owner) if not name.startswith("_")]:
            assert f"### {owner.__name__}.{name}\n" in section or f"| `{name}` |" in section, f"{title}.{name}"
    undescribed = re.findall(r"^\| `.*\|  \|$", page, re.MULTILINE)
    assert not undescribed, "give these a docstring, or a comment beside the field"


def test_the_chart_is_drawn_from_the_recorded_results(tmp_path):
    assert benchmarks(["chart", str(RECORDED / "peers.json"), "-o", str(tmp_path / "speed.svg")]) == 0
    assert (tmp_path / "speed.svg").read_bytes() == (ROOT / "docs" / "speed.svg").read_bytes()


def test_a_page_of_the_results_of_this_machine(tmp_path):
    """What `make bench` writes has more runs of more kinds than the recorded results; each run is in a table."""
    bars = [{"what": "cost of it", "measured": 7.25, "unit": "%", "bar": "<= 5", "met": False}]
    runs = [{"what": "one", "seconds": 0.5, "cpu": 1234.5}, {"what": "two", "steps": {"import": 0.1, "load": 2}}]
    machine = {"cpu": "a processor", "cores": 3}
    (tmp_path / "loading.json").write_text(
        json.dumps({"machine": machine, "bars": bars, "runs": runs, "notes": ["So."]})
    )
    page = script("benchmark_page").page(tmp_path)
    assert "\n## Loading\n" in page
    assert "\n## Builds\n" not in page
    assert "cpu a processor, cores 3." in page
    assert "| cost of it | **7.25 %** | <= 5: missed |" in page
    assert "| run | seconds | cpu |\n| --- | --- | --- |\n| one | 0.5 | 1,234 |" in page
    assert "| run | import | load |\n| --- | --- | --- |\n| two | 0.1 | 2 |" in page
    assert page.endswith("So.\n")


def test_links_lead_somewhere():
    """To files of the repository and headings in them, as GitHub makes anchors of headings. `make docs` checks the site."""
    count = 0
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
            name, _, anchor = target.partition("#")
            found = (page.parent / name) if name else page
            assert found.exists(), f"{page.name}: {target}"
            assert found.resolve().is_relative_to(ROOT), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", without_code(found), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{page.name}: {target}"
            count += 1
    assert count > 200


def without_code(page: Path) -> str:
    """A page without its code blocks, in which a comment looks like a heading."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("folder", ["docs", "docs/decisions"])
def test_every_page_is_in_the_index(folder):
    index = (ROOT / folder / "README.md").read_text("utf-8")
    for page in (ROOT / folder).glob("*.md"):
        assert page.name == "README.md" or f"({page.name}" in index, page.name


def test_pictures_are_shown_and_described():
    """Each picture is on a page, with a text for those who do not see it, and can be read on light and dark pages."""
    shown = {}
    for page in PAGES:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", without_code(page)):
            shown[(page.parent / target).resolve()] = text
    assert all(len(text) > 20 for text in shown.values()), shown
    for picture in (ROOT / "docs").rglob("*.svg"):
        assert picture in shown, picture.name
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        source = picture.read_text("utf-8")
        assert "prefers-color-scheme: dark" in source
        assert "<title" in source
        assert not re.search(r"https?://(?!www\.w3\.org/)", source)


def test_quoted_errors_are_those_of_the_code():
    """What troubleshooting.md quotes as a message of tokenmill is in its source."""
    others = {"tokenmill: command not found", "No matching distribution found for tokenmill"}
    sources = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    sources = re.sub(r'"\n\s+f?"', "", sources)  # messages that go on in the next line
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    symptoms = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)
    quoted = [text for symptom in symptoms for text in re.findall(r"`([^`]+)`", symptom) if text not in others]
    assert len(quoted) > 25
    for text in quoted:
        for part in re.split(r"\.\.\.|'text'|rank 0 of 1", text):
            shown = part.strip(" ,;")
            assert shown in sources or shown in ("pip install 'tokenmill[", "]'"), text


def test_how_tos_run(tmp_path, tokenizer_path, proved):
    """Their commands and Python, on small files of the same layout. A folder stands for each tokenizer of the Hub."""
    stories = [f"Once upon a time there was a cat. It had {i} friends.\n" * 20 for i in range(60)]
    (tmp_path / "TinyStories").mkdir()
    for name in ("train", "valid"):
        text = "<|endoftext|>\n".join(stories)
        (tmp_path / "TinyStories" / f"TinyStories-{name}.txt").write_text(text)
    (tmp_path / "fineweb/sample/10BT").mkdir(parents=True)
    table = pa.table({"text": stories, "id": [str(i) for i in range(60)], "url": ["https://example.org"] * 60})
    pq.write_table(table, tmp_path / "fineweb/sample/10BT/000_00000.parquet")
    (tmp_path / "data").mkdir()
    lines = (json.dumps({"text": f"Document {i}.\n" * 400}) for i in range(60))
    (tmp_path / "data" / "part.jsonl").write_text("\n".join(lines))
    for name in ("gpt2", "Qwen/Qwen3-0.6B-Base"):
        shutil.copytree(tokenizer_path, tmp_path / name)
    shutil.copytree(proved, tmp_path / "cache")
    more = """
assert next(iter(train))["input_ids"].shape == (8, 512) and len(valid) > 0
assert next(iter(loader))["labels"].shape == (2, 4096)
x, y = get_batch("train")
assert x.shape == y.shape == (12, 256) and (x[:, 1:] == y[:, :-1]).all()
import numpy as np
assert sum(np.fromfile(f"nano-bin/{name}.bin", np.uint16).size for name in ("train", "val")) == tm.open("nano").num_tokens
assert len(tm.open("from-datasets")) == 100 and len(rows) > 0
assert store.text(0) == tm.open("nano").text(0) and store._manifest.tokenizer["eos_token"] == "<|endoftext|>"
"""
    page = (ROOT / "docs" / "howto.md").read_text("utf-8")
    run_commands(page, tmp_path)
    run_here("\n".join([*re.findall(r"```python\n(.*?)```", page, re.DOTALL), more]), tmp_path)
    assert len(tm.open(tmp_path / "stories")) == 120
    assert list(tm.open(tmp_path / "stories").splits) == ["train", "validation"]
    assert len(tm.open(tmp_path / "fineweb-gpt2")) == 60


def test_scripts_and_what_replaces_them(tmp_path, tokenizer_path, proved):
    """The blocks of docs/coming.md: scripts as they are written everywhere, and tokenmill beside them, give the same ids."""
    (tmp_path / "data").mkdir()
    for part in range(40):
        text = "".join(f"def of_{part}_{i}(value):\n    return value + {i * i}\n" for i in range(150))
        (tmp_path / "data" / f"{part:02}.txt").write_text(text)
    shutil.copy(tokenizer_path / "tokenizer.json", tmp_path)
    shutil.copytree(proved, tmp_path / "cache")
    page = (ROOT / "docs" / "coming.md").read_text("utf-8")
    (recipe,) = re.findall(r"```yaml\n(# recipe\.yaml\n.*?)```", page, re.DOTALL)
    (tmp_path / "recipe.yaml").write_text(recipe)
    told = run_commands(page, tmp_path)
    assert (
        "40 documents compared with tokenizers, the reference: 0 differ"
        in told["bench data --validate -t tokenizer.json"]
    )
    more = """
theirs = [torch.load(path).tolist() for path in sorted(Path("their-chunks").iterdir())]
ours = [torch.load(path).tolist() for path in sorted(Path("chunks").glob("*.pt"))]
assert len(theirs) > 1 and [[ids] for ids in theirs] == ours and rows[0].tolist() == theirs[0]
whole = tm.open("corpus")
assert count + 40 == whole.num_tokens == tm.open("by-folder").num_tokens
assert next(iter(loader))["input_ids"].shape == (8, 1024) and len(held_out) > 0
assert store.fingerprint == whole.fingerprint
def documents(folder):
    ids = np.concatenate([np.fromfile(f"{folder}{name}.bin", np.uint16) for name in ("train", "val")])
    return sorted(part.tolist() for part in np.split(ids, np.flatnonzero(ids == eos) + 1))
assert documents("their-") == documents("bins/") and len(documents("bins/")) == 40 + 1
assert 0 < data.size < whole.num_tokens
"""
    run_here("\n".join([*re.findall(r"```python\n(.*?)```", page, re.DOTALL), more]), tmp_path)


def test_the_flags_of_the_trainer_in_the_pages_exist(monkeypatch):
    example = load_script(ROOT / "examples" / "train_gpt.py")
    pages = "\n".join(page.read_text("utf-8") for page in PAGES).replace("\\\n", "")
    shown = re.findall(r"train_gpt\.py(.*)$", pages, re.MULTILINE)
    commands = [text for text in shown if text.startswith(" ") and "`" not in text and "..." not in text]
    assert len(commands) > 4
    for text in commands:
        example.arguments(shlex.split(text, comments=True))
