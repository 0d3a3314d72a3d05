"""Traits: what a build has to know about an engine, instead of its name."""

from __future__ import annotations

import subprocess
import sys

from transformers import ByT5Tokenizer

import tokenmill as tm
from tokenmill.encoding.engines import ENGINES, EngineTraits, engine_traits


def test_only_python_tokenizers_are_slow():
    assert [name for name in ENGINES if engine_traits(name).is_slow] == ["python"]
    assert engine_traits("live") == EngineTraits(is_slow=True, in_process_only=True)
    assert engine_traits("live").in_process_only
    assert not any(engine_traits(name).in_process_only for name in ENGINES)


def test_a_fast_tokenizer(tokenizer_path):
    """Whether it is slow is known before an engine is chosen."""
    tokenizer = tm.load_tokenizer(tokenizer_path)
    assert not tokenizer._reference_traits.is_slow
    assert "choice" not in tokenizer.__dict__
    assert tokenizer._traits == engine_traits(tokenizer.choose_engine()) == EngineTraits()
    assert not tokenizer._runs_reference
    assert tm.load_tokenizer(tokenizer_path, engine="reference")._runs_reference


def test_slow_tokenizers():
    """One that can be loaded from its files runs in worker processes; one whose class is only here does not."""

    class Local(ByT5Tokenizer):
        pass

    copied, local = tm.load_tokenizer(ByT5Tokenizer()), tm.load_tokenizer(Local())
    assert copied._reference_traits.is_slow
    assert local._reference_traits.is_slow
    assert (copied.choose_engine(), copied._traits.in_process_only, copied._runs_reference) == ("python", False, True)
    assert (local.choose_engine(), local._traits.in_process_only, local._runs_reference) == ("live", True, True)
    assert local.encode("é") == copied.encode("é")


def test_the_package_does_not_import_its_test_suites():
    code = (
        "import sys, tokenmill, tokenmill.encoding; tokenmill.load_tokenizer\n"
        "sys.exit('pytest' in sys.modules or 'tokenmill.testing' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
