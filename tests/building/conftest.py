"""What the tests of builds share."""

from __future__ import annotations

import pytest

from tokenmill.building import source_index


@pytest.fixture(scope="session", autouse=True)
def _files_settle_soon():
    """A file is known by how it looks after a fraction of a second, so that tests need not wait for 40."""
    patch = pytest.MonkeyPatch()
    patch.setattr(source_index, "SETTLING", 3 * 10**8)
    yield
    patch.undo()
