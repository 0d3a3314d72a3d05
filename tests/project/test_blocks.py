"""Every code block of the pages is run by a test, or says in its first lines what it needs that a test does not have.

`python`, `bash` and `yaml` are run; with a title, as in `bash title="megatron"`, by `make conformance`, with the library of that
name. `py`, `sh`, and `yaml` that is no recipe, are not run, and have a comment such as `# Needs a GPU.` Blocks without a language
are no code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import load_script

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
CODE = re.compile(r"^(?:tokenmill|pip|uv|python3?|make|hf|ray|git|import|from \w+ import) |^tm\.\w+\(", re.MULTILINE)
# The test that runs the blocks of each page.
RUN_BY = {
    "README.md": "project/test_docs.py::test_readme_examples_run",
    "docs/api.md": "project/test_docs.py::test_api_page_runs",
    "docs/building.md": "project/test_docs.py::test_building_page_runs",
    "docs/cache.md": "project/test_docs.py::test_cache_page_runs",
    "docs/coming.md": "project/test_pages.py::test_scripts_and_what_replaces_them",
    "docs/estimate.md": "estimating/test_estimate.py::test_estimate_page_runs",
    "docs/formats.md": "project/test_docs.py::test_formats_page_runs",
    "docs/howto.md": "project/test_pages.py::test_how_tos_run",
    "docs/loading.md": "loading/test_loading_integrations.py::test_the_page_runs",
    "docs/packing.md": "project/test_docs.py::test_packing_page_runs",
    "docs/recipes.md": "recipes/test_recipe_command.py::test_the_page_runs",
    "docs/scale.md": "project/test_hub_page.py::test_the_section_on_datasets_runs",
    "docs/tokenizers.md": "project/test_docs.py::test_tokenizers_page_runs",
    "docs/tutorial.md": "project/test_docs.py::test_tutorial_runs",
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The code blocks of a page: what stands behind the fence, and the text."""
    found = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert page.read_text("utf-8").count("```") >= 2 * len(found)
    return found


def says_what_it_needs(block: str) -> bool:
    """Whether the comments that a block begins with say what it needs."""
    comments = re.match(r"(?:#.*\n)*", block)
    return comments is not None and re.search(r"^# Needs .+\.$", comments[0], re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_run_or_say_what_they_need(page):
    name = page.relative_to(ROOT).as_posix()
    for language, block in blocks(page):
        if language in ("py", "sh"):
            signature = name == "docs/api.md"  # its signatures are compared with the code by another test
            assert signature or says_what_it_needs(block), f"{name}: say what this needs: {block}"
        elif language == "":
            assert not CODE.search(block), f"{name}: give this block a language: {block}"
        elif not (language == "yaml" and says_what_it_needs(block)):
            assert re.fullmatch(r'(python|bash|yaml)( title="\w+")?', language), f"{name}: {language}"
            assert name in RUN_BY, f"{name}: no test runs {block}"
            assert not says_what_it_needs(block), f"{name}: a block that is run says that it needs something: {block}"


def test_the_tests_that_run_pages_exist():
    for page, test in RUN_BY.items():
        path, name = test.split("::")
        source = (ROOT / "tests" / path).read_text("utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), test
        assert Path(page).name in source, f"{path} does not mention {page}"


def test_blocks_with_a_title_are_those_of_the_trainers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    titled = [language for page in PAGES for language, _ in blocks(page) if "title=" in language]
    known = load_script(ROOT / "scripts" / "trainer_blocks.py").blocks()
    assert titled == [f'{language} title="{name}"' for name in known for language in ("bash", "python")]
