"""What type checkers and editors see of the objects that users hold."""

from __future__ import annotations

import inspect
import typing

import pytest

import tokenmill as tm
from tokenmill.encoding.api import StoredTokenizer

TYPED = {
    tm.Store: "__getitem__ __iter__ __enter__ dtype lengths locate quarantine splits text to_arrow tokenizer verify",
    tm.View: "__getitem__ __getitems__ __iter__ documents rows shape split",
    tm.Tokenizer: "__call__ __len__ decode dtype encode engine eos_id eos_token_id pad_token_id special_ids token_name",
    StoredTokenizer: "encode decode __call__ engine load eos_token_id",
}


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in TYPED.items() for name in names.split()])
def test_results_are_typed(owner, name):
    """No Any: of an overloaded method, what each of its forms returns."""
    member = inspect.getattr_static(owner, name)
    function = getattr(member, "func", getattr(member, "fget", member))
    for form in typing.get_overloads(function) or [function]:
        returned = form.__annotations__["return"]
        assert "Any" not in returned, f"{owner.__name__}.{name} -> {returned}"
        of_alias = typing.get_args(form.__globals__.get(returned))
        assert typing.Any not in of_alias, f"{owner.__name__}.{name} -> {returned}, with {of_alias}"
