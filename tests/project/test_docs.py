"""Undocumented equals failing, and what the documents show is run."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from pages import run_commands, run_here, run_page, run_script

import tokenmill
from tokenmill.cli import parser
from tokenmill.exchange.registry import FORMATS as EXCHANGED
from tokenmill.reading import FORMATS as READ

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PUBLIC = [name for name in dir(tokenmill) if not name.startswith("_")]


def commands(name: str, command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command, those within others too, by the words it is called with."""
    found = {name: command}
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, within in action.choices.items():
                found |= commands(f"{name} {below}", within)
    return found


def test_every_command_and_flag_is_documented():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    for name, command in commands("tokenmill", parser()).items():
        section = page.split(f"## {name}\n")[1].split("\n## ")[0]
        for action in command._actions:
            for flag in action.option_strings:
                assert flag in section, f"docs/commands.md lacks {name} {flag}; run scripts/command_pages.py"


def test_every_function_is_in_the_readme_or_the_changelog():
    documents = README + (ROOT / "CHANGELOG.md").read_text("utf-8")
    for name in PUBLIC:
        if inspect.isroutine(getattr(tokenmill, name)):
            assert f"tm.{name}" in documents


def test_formats_errors_variables_and_extras_are_documented():
    docs = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}
    for name in EXCHANGED:
        assert f"`{name}`" in docs["formats.md"]
    for name in READ:
        assert name in docs["building.md"]
    for name, error in vars(tokenmill.errors).items():
        if inspect.isclass(error) and issubclass(error, tokenmill.errors.TokenmillError):
            assert re.search(rf"\b{name}\b", docs["api.md"]), name
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for name in set(re.findall(r"TOKENMILL_[A-Z_]+", sources)) - {"TEST_SURVIVOR"}:  # of a test suite
        assert any(name in page for page in docs.values()), name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for name in [name for name, packages in extras.items() if packages]:
        assert f"`tokenmill[{name}]`" in docs["install.md"]


def test_public_names_are_these():
    """The public API changes on purpose or not at all."""
    classes = ["Loader", "Source", "Store", "Tokenizer", "View"]
    verbs = ["build", "errors", "estimate", "export", "import_tokens"]
    verbs += ["load", "load_tokenizer", "mix", "open", "pack", "read", "recipe"]
    assert classes + verbs == PUBLIC
    assert tokenmill.__all__ == [name for name in PUBLIC if name != "open"]  # import * leaves the builtin alone
    for name in PUBLIC:
        assert getattr(tokenmill, name) is not None
        assert name in dir(tokenmill)


@pytest.fixture
def folder(tmp_path, tokenizer_path, proved):
    """A folder with the files that the pages speak of, small, and a cache that knows the tokenizer."""
    (tmp_path / "data").mkdir()
    for part in range(2):
        rows = [{"title": f"Title {i}", "text": f"Document {i} of part {part}.\n" * 300} for i in range(20)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "data" / f"part-{part}.jsonl").write_text(lines)
    shutil.copytree(tokenizer_path, tmp_path / "path" / "to")
    shutil.copytree(proved, tmp_path / "cache")
    return tmp_path


def test_the_readme_is_short():
    assert len(README.encode()) <= 6000
    first_screen = README.splitlines()[:24]
    assert any(line.startswith("make demo") for line in first_screen)
    assert any(line.startswith("make test") for line in first_screen)


@pytest.mark.parametrize("name", ["README.md", "docs/coming.md", "docs/tutorial.md"])
def test_code_of_the_first_pages_fits_the_site(name):
    """Blocks show 88 columns without scrolling, on the site and on GitHub; what is further right is not read."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 88]


def test_readme_examples_run(folder):
    """Every bash and Python block of the README, as it stands. The Python needs no file."""
    run_page(README, folder)
    assert len(tokenmill.open(folder / "mine")) == 40
    assert len(tokenmill.open(folder / "corpus")) > 100


def test_api_page_runs(folder):
    """Every example of docs/api.md, in its order, which are in the docstrings of the functions."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for name in PUBLIC:
        section = page.split(f"\n## tm.{name}\n")[1].split("\n## ")[0]
        assert inspect.isclass(getattr(tokenmill, name)) or "```python\n" in section, f"tm.{name} has no example"
    examples.append("assert len(store) == 40 and batch['input_ids'].shape == (4, 128) and len(held_out) > 0")
    run_here("\n".join(examples), folder)


def test_building_page_runs(folder):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "building.md").read_text("utf-8"), re.DOTALL)
    run_script(block, folder)
    assert len(tokenmill.open(folder / "from-python")) == 1000
    assert len(tokenmill.open(folder / "trial")) == 40


def test_tutorial_runs(folder):
    """Its Python, then its commands on the store that the Python has made."""
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    run_here("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), folder)
    told = run_commands(page, folder)
    assert "all checksums match" in told["verify tutorial/store"]


def test_tokenizers_page_runs(tmp_path, tokenizer_path, proved):
    """The Python of docs/tokenizers.md, as it stands."""
    shutil.copytree(tokenizer_path, tmp_path / "path" / "to")
    page = (ROOT / "docs" / "tokenizers.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    block += 'assert tokenizer.decode(ids) == "Hello world"\n'
    block += 'assert tm.load_tokenizer("bytes").encode("é") == [195, 169]\n'
    shutil.copytree(proved, tmp_path / "cache")
    run_script(block, tmp_path)


def test_cache_page_runs(tmp_path, tokenizer_path, proved):
    """The bash and Python of docs/cache.md, as they stand."""
    (tmp_path / "data").mkdir()
    for part in range(2):
        lines = (json.dumps({"title": f"Title {i}", "text": f"Document {i} of {part}."}) for i in range(20))
        (tmp_path / "data" / f"{part}.jsonl").write_text("\n".join(lines))
    shutil.copytree(tokenizer_path, tmp_path / "path" / "to")
    shutil.copytree(proved, tmp_path / "cache")
    python = "assert len(store) == 40 and len(trial) == 10 and store.path.parts[-2] == 'stores'\n"
    said = run_page((ROOT / "docs" / "cache.md").read_text("utf-8"), tmp_path, python).said
    assert ["up to date" in text for text in said[:3]] == [False, True, False]
    assert "text_field: was 'text', now 'title'" in said[2]
    assert "1 store" in said[3]


def test_packing_page_runs(tmp_path, tokenizer_path):
    """The Python and the commands of docs/packing.md, as they stand, over a store."""
    tokenmill.build((f"document {i} " * (i % 40) for i in range(900)), tokenizer_path, tmp_path / "corpus", workers=0)
    page = (ROOT / "docs" / "packing.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    block += "assert batch['input_ids'].shape == (2, 2048)\n"
    block += "assert len(parts['train']) + len(parts['eval']) >= len(view) > 1\n"
    run_script(block, tmp_path)
    told = run_commands(page, tmp_path)
    assert "boundaries/row" in told["stats corpus/ --seq-len 2048 --compare"]
    assert (tmp_path / "rows.svg").exists()


def test_formats_page_runs(tmp_path, tokenizer_path, proved):
    """The commands and the Python of docs/formats.md, as they stand, over a store."""
    shutil.copytree(proved, tmp_path / "cache")
    tokenmill.build((f"document {i} " * (i % 40) for i in range(900)), tokenizer_path, tmp_path / "corpus", workers=0)
    run_page((ROOT / "docs" / "formats.md").read_text("utf-8"), tmp_path)
    assert tokenmill.open(tmp_path / "again").fingerprint == tokenmill.open(tmp_path / "corpus").fingerprint


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_demo_installs_the_package_and_nothing_else(tmp_path):
    """Development needs torch and transformers, which take longer than the demo. They are added by `make test`."""
    installs = {}
    for target in ("demo", "test"):
        command = ["make", "-n", target, f"VENV={tmp_path / 'venv'}"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
        installs[target] = re.findall(r"pip install .* -c constraints\.txt -e (\S+)", said)
    assert installs == {"demo": ["."], "test": [".", "'.[dev]'"]}


def test_makefile_is_what_the_readme_and_ci_call():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in ("demo", "test", "docs", "bench", "bench-peers", "conformance"):
        assert f"\n{target}:" in makefile
        assert f"make {target}" in README
    ci = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    for target in ("test", "docs", "stress", "cluster"):
        assert f"make {target}" in ci
