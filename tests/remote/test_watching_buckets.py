"""Builds in buckets, watched from elsewhere: the log is copied there while they run."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from build_helpers import wait_until
from dashboard_client import serving

import tokenmill as tm
from tokenmill.building import bucket_destination
from tokenmill.dashboard import watched
from tokenmill.dashboard.watched import BucketPlace, library_at
from tokenmill.errors import StoreError


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(watched, "BUCKET_SECONDS", 0.0)
    monkeypatch.setattr(bucket_destination, "LOG_SECONDS", 0.01)


def build(corpus, url: str, **options) -> tm.Store:
    return tm.build(corpus, "demo", url, **{"workers": 0, "progress": "quiet", "shard_bytes": 40_000, **options})


def test_a_finished_store_is_shown_with_its_log(bucket, corpus, own_cache):
    store = build(corpus, f"{bucket}/store")
    with serving(library_at(f"{bucket}/store")) as asked:
        assert store.fingerprint in asked.part("facts")
        assert f'data-value=\\"{store.num_tokens}\\"' in asked.first_event()
        assert 'class=\\"state finished\\"' in asked.first_event()


def test_a_build_is_seen_while_it_runs_and_when_it_fails(bucket, corpus, own_cache):
    """There is no store yet, only its log; the last lines are there when the build fails."""
    seen: list[str] = []

    def stop_in_the_middle(event: tm.events.Event) -> None:
        if event.name == "shard_done" and not seen:
            place = BucketPlace(f"{bucket}/store")
            assert wait_until(lambda: (place() / "events.jsonl").exists())
            seen.append((place() / "events.jsonl").read_text())
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        build(corpus, f"{bucket}/store", progress=stop_in_the_middle)
    assert '"begun"' in seen[0]
    with serving(library_at(f"{bucket}/store")) as asked:
        assert "stop here" in asked.first_event()
        assert asked.get("/part/facts").status == 404
        store = build(corpus, f"{bucket}/store")
        assert store.fingerprint in asked.part("facts")


def test_what_could_not_be_read_once_is_read_the_next_time(bucket, corpus, own_cache, monkeypatch):
    build(corpus, f"{bucket}/store")
    place = BucketPlace(f"{bucket}/store")
    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.io.object_store.read", Mock(side_effect=OSError("the network is gone")))
        assert not (place() / "events.jsonl").exists()
    assert (place() / "events.jsonl").exists()


def test_a_place_without_a_store_is_refused(bucket, own_cache):
    with pytest.raises(StoreError, match="no token store at"):
        library_at(f"{bucket}/nothing")
