"""The process that owns a GPU, what becomes of it in trouble, the choice of an engine, and builds; on a simulated GPU."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from build_helpers import wait_until
from gpu_simulation import by_reference, needs_compiler, simulated_gpu

import tokenmill as tm
from tokenmill.cli import main
from tokenmill.encoding.definition import Definition
from tokenmill.encoding.gpu.device import Room
from tokenmill.encoding.gpu.device_client import DeviceConnection, DeviceProblem, _name
from tokenmill.encoding.gpu.device_process import DeviceServer, _in_words
from tokenmill.encoding.gpu.engine import MOST_LOSSES, GpuEngine, remember_rates
from tokenmill.encoding.gpu.hash_tables import tables_of
from tokenmill.encoding.gpu.shared_batch import OutOfRoom
from tokenmill.encoding.selection import characters, choosing
from tokenmill.encoding.selection.choosing import choose
from tokenmill.encoding.selection.proof import Proof
from tokenmill.errors import TokenizerError
from tokenmill.testing.engines import encode

pytestmark = needs_compiler


# The process that owns the device.


def process_of(engine: GpuEngine) -> int:
    assert engine._connection is not None
    return engine._connection.pid


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_all_share_one_process_which_ends_after_the_last(gpu, gpu_definition):
    engines = [GpuEngine(gpu_definition) for _ in range(3)]
    for engine in engines:
        encode(engine, ["words"])
    (pid,) = {process_of(engine) for engine in engines}
    for engine in engines:
        assert is_running(pid)
        engine._connection.close()
    assert wait_until(lambda: not is_running(pid)), "it still runs"
    assert encode(engines[0], ["words"]) == by_reference(gpu_definition, ["words"])  # with a new one
    assert process_of(engines[0]) != pid


def _encode_elsewhere(definition: Definition, texts: list[str], results) -> None:
    engine = GpuEngine(definition)
    results.put([encode(engine, texts[low : low + 40]) for low in range(0, len(texts), 40)])


def test_many_processes_at_once(gpu, gpu_definition, gpu_texts):
    """Their requests are encoded together; each gets its own ids."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    shares = [gpu_texts[number::4] for number in range(4)]
    keeps = GpuEngine(gpu_definition)
    encode(keeps, ["it runs"])
    processes = [context.Process(target=_encode_elsewhere, args=(gpu_definition, share, results)) for share in shares]
    for process in processes:
        process.start()
    found = [[ids for part in results.get() for ids in part] for _ in processes]
    for process in processes:
        process.join()
    assert sorted(found) == sorted(by_reference(gpu_definition, share) for share in shares)


def test_a_process_that_is_forked_has_a_connection_of_its_own(gpu, gpu_definition):
    engine = GpuEngine(gpu_definition)
    encode(engine, ["before"])
    first = engine._connection
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child() -> None:
        ids = encode(engine, ["in the child"])
        results.put((ids, engine._connection is first))

    process = context.Process(target=child)
    process.start()
    ids, is_same = results.get()
    process.join()
    assert (ids, is_same) == (by_reference(gpu_definition, ["in the child"]), False)
    assert encode(engine, ["after"]) == by_reference(gpu_definition, ["after"])


def test_a_document_longer_than_usual_batches(gpu, gpu_definition, monkeypatch, real_texts):
    monkeypatch.setattr("tokenmill.encoding.gpu.device_client.USUAL_ROOM", 1 << 14)
    texts = ["short", "".join(real_texts)[:30_000], "", *["x"] * 3000, "end"]
    assert encode(GpuEngine(gpu_definition), texts) == by_reference(gpu_definition, texts)


def test_killed_it_is_started_again(gpu, gpu_definition):
    engine, pids = GpuEngine(gpu_definition), set()
    for text in ("words", "more words", "the last words", "and one more"):
        assert encode(engine, [text]) == by_reference(gpu_definition, [text])
        pids.add(process_of(engine))
        os.kill(process_of(engine), signal.SIGKILL)
    assert len(pids) == 4
    assert not engine.device_lost


def test_a_device_that_is_lost_leaves_the_rest_to_the_reference(tmp_path, gpu_definition, gpu_texts):
    with simulated_gpu(tmp_path, launches=30):
        engine = GpuEngine(gpu_definition)
        for low in range(0, 120, 20):
            part = gpu_texts[low : low + 20]
            assert encode(engine, part) == by_reference(gpu_definition, part)
        assert engine._losses == MOST_LOSSES
        assert "the device is lost" in engine.device_lost


def test_less_memory_means_smaller_batches(tmp_path, gpu_definition, gpu_texts):
    with simulated_gpu(tmp_path, memory=600 << 20) as patch:
        patch.setenv("TOKENMILL_GPU_MEMORY", "100GB")
        engine = GpuEngine(gpu_definition)
        part = gpu_texts[:60]
        assert encode(engine, part) == by_reference(gpu_definition, part)
        tables = tables_of(gpu_definition.engine_json).nbytes
        assert engine._connection.most_bytes == Room.within(int((600 << 20) * 0.9), tables).batch_bytes - 512


@pytest.mark.parametrize(
    ("settings", "limit", "said"),
    [
        ({"devices": 0}, "1GB", "there is no CUDA device"),
        ({"memory": 100 << 20}, "1GB", "it needs 256.0 MB of free memory, and TOKENMILL_GPU_MEMORY"),
        ({}, "100MB", "it needs 256.0 MB of free memory, and TOKENMILL_GPU_MEMORY"),
        ({}, "many", "TOKENMILL_GPU_MEMORY='many' is not a size"),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path, capsys, tokenizer_path, settings, limit, said):
    (tmp_path / "a.txt").write_text("text")
    command = [
        "build",
        str(tmp_path / "a.txt"),
        "-t",
        str(tokenizer_path),
        "-o",
        str(tmp_path / "s"),
        "--engine",
        "gpu",
    ]
    with simulated_gpu(tmp_path / "cache", **settings) as patch:
        patch.setenv("TOKENMILL_GPU_MEMORY", limit)
        assert main(command) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert f"engine='gpu' cannot be used: {said}" in lines[-1]


def test_connections_are_spread_over_the_devices(tmp_path, gpu_definition):
    with simulated_gpu(tmp_path, devices=2):
        engines = [GpuEngine(gpu_definition) for _ in range(4)]
        for engine in engines:
            assert encode(engine, ["words"]) == by_reference(gpu_definition, ["words"])
        pids = [process_of(engine) for engine in engines]
        assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2]


@pytest.mark.parametrize(
    "request_",
    [
        {"documents": 1, "nbytes": 1 << 40},
        {"documents": 1, "nbytes": 5},  # the offsets say otherwise
        {"documents": -1, "nbytes": 0},
        {"documents": 0, "nbytes": 0},
        {"documents": 1 << 30, "nbytes": 4},
        {"text_room": 1 << 20},
        {"text_room": "much"},
        {},
        {"documents": 1, "nbytes": 4.5},
        {"text_room": -5},
        [],
        "encode",
    ],
)
def test_requests_that_cannot_be_right_harm_nobody(gpu, gpu_definition, request_):
    connection, other = DeviceConnection(gpu_definition.engine_json), GpuEngine(gpu_definition)
    connection._batch.offsets[:2] = 0, 4
    with pytest.raises(DeviceProblem, match="cannot be right"):
        connection._ask(request_)
    connection.close()
    assert encode(other, ["words"]) == by_reference(gpu_definition, ["words"])


@pytest.mark.parametrize("file", ["/dev/null", "/etc/passwd"])
def test_a_batch_must_be_as_large_as_it_is_said_to_be(gpu, gpu_definition, file):
    connection, other = DeviceConnection(gpu_definition.engine_json), GpuEngine(gpu_definition)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(DeviceProblem, match=r"cannot be right: a batch of .* does not fit"):
            connection._ask({"text_room": 1 << 20}, [descriptor])
    finally:
        os.close(descriptor)
    assert encode(other, ["words"]) == by_reference(gpu_definition, ["words"])


def test_an_interrupted_request_is_not_answered_later(gpu, gpu_definition, monkeypatch):
    """Else every result would be that of the request before."""
    engine = GpuEngine(gpu_definition)
    encode(engine, ["words"])

    def interrupted(connection):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.encoding.gpu.device_client._answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encode(engine, ["a first text"])
    for text in ("a second text", "a third one", "one more"):
        assert encode(engine, [text]) == by_reference(gpu_definition, [text])


def test_threads_may_share_an_engine(gpu, gpu_definition, gpu_texts):
    engine = GpuEngine(gpu_definition)
    shares = [gpu_texts[number::4][:20] for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda share: [encode(engine, [text])[0] for text in share], shares))
    assert found == [by_reference(gpu_definition, share) for share in shares]


def test_a_new_connection_may_have_less_room(gpu, gpu_definition, monkeypatch):
    """A long document makes the batch larger; after a loss it is as usual again."""
    monkeypatch.setattr("tokenmill.encoding.gpu.device_client.USUAL_ROOM", 1 << 12)
    engine = GpuEngine(gpu_definition)
    encode(engine, ["word " * 5000])
    before, encode_batch = engine._connection, DeviceConnection.encode

    def lost(connection, *arguments):
        if connection is before:
            raise DeviceProblem("gone")
        return encode_batch(connection, *arguments)

    monkeypatch.setattr(DeviceConnection, "encode", lost)
    many = ["a"] * 1000
    assert encode(engine, many) == by_reference(gpu_definition, many)
    assert engine._connection not in (None, before)


@pytest.mark.parametrize("call", ["memfd_create", "ftruncate"])
def test_errors_of_the_system_are_losses_of_the_device(gpu, gpu_definition, monkeypatch, call):
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(f"os.{call}", fail)
    monkeypatch.setattr("tokenmill.encoding.gpu.engine.RETRY_SECONDS", 0.01)
    engine = GpuEngine(gpu_definition)
    assert encode(engine, ["words"]) == by_reference(gpu_definition, ["words"])
    assert "Too many open files" in engine.device_lost


def test_requests_that_fit_only_alone_are_encoded_alone(gpu, monkeypatch):
    """Together they need more memory than there is; what the attempt took is free again."""
    server = DeviceServer.__new__(DeviceServer)
    import cupy

    server._cupy, tried = cupy, []

    def encode_together(group):
        tried.append(len(group))
        if len(group) > 1:
            raise OutOfRoom

    monkeypatch.setattr(server, "_encode_together", encode_together)
    server._encode([None, None])
    assert tried == [2, 1, 1]


def test_what_cupy_says_about_itself_is_not_repeated():
    said = (
        "=" * 60
        + "\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: libnvrtc.so.12: no such file\n"
        + "=" * 60
    )
    assert _in_words(ImportError(said)) == "CuPy cannot be imported: ImportError: libnvrtc.so.12: no such file"
    assert _in_words(ImportError("No module named 'cupy'")) == "CuPy cannot be imported: No module named 'cupy'"
    assert _in_words(ValueError("===\nwords\nmore")) == "words"
    assert _in_words(AssertionError()) == "AssertionError"


def test_the_address_depends_on_what_the_process_is_for(monkeypatch):
    first = _name("{}", 0)
    assert _name("{}", 0) == first
    assert len({first, _name("{ }", 0), _name("{}", 1)}) == 3
    monkeypatch.setenv("TOKENMILL_GPU_MEMORY", "3GB")
    assert _name("{}", 0) != first


# The choice of an engine.


def test_what_the_reference_has_encoded_proves_nothing(tmp_path, tokenizer_path):
    lost = pytest.raises(TokenizerError, match="its device was lost: cudaErrorIllegalAddress")
    with simulated_gpu(tmp_path, launches=5), lost:
        assert tm.load_tokenizer(tokenizer_path, engine="gpu").engine
    with simulated_gpu(tmp_path) as patch:
        patch.setenv("TOKENMILL_GPU_MEMORY", "300MB")
        assert tm.load_tokenizer(tokenizer_path, engine="gpu").engine == "gpu"  # it was not refused for ever


@pytest.mark.parametrize("is_faster", [False, True])
def test_a_gpu_is_chosen_for_large_corpora_if_it_is_faster(
    gpu, tmp_path, proved, monkeypatch, gpu_definition, is_faster
):
    """By what `tokenmill bench` has measured: for little text the start of the device takes longer than all else."""
    shutil.copytree(proved, tmp_path / "cache")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choosing, "prove", lambda definition, name: Proof(name, "1", True, "it is proved"))
    large = {"text_bytes": 10**11, "processes": 3}
    assert choose(gpu_definition, **large).engine == "gigatoken"  # nothing was measured
    remember_rates(gpu_definition, {"gpu": 4e8 if is_faster else 2e8, "gigatoken": 1e8, "tokenizers": 1e6})
    for settings in ({"text_bytes": 10**6, "processes": 3}, {"text_bytes": 10**11}, {}):
        assert choose(gpu_definition, **settings).engine == "gigatoken"
    assert (choose(gpu_definition, **large).engine == "gpu") == is_faster
    if is_faster:
        assert choose(gpu_definition, text_bytes=10**11, processes=5).engine == "gigatoken"
        monkeypatch.setattr(GpuEngine, "is_installed", lambda: False)
        assert choose(gpu_definition, **large).engine == "gigatoken"


# Builds.


@pytest.fixture(scope="module", autouse=True)
def _few_characters():
    """The simulated device is slow: it is asked about some characters of every kind, and all others are guarded."""
    asked = (
        (0, 0x24F),
        (0x300, 0x36F),
        (0x600, 0x66F),
        (0x2000, 0x206F),
        (0x4E00, 0x4E3F),
        (0x1F600, 0x1F63F),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(characters, "_PLANES", asked)
        characters.not_asked.cache_clear()
        yield
    characters.not_asked.cache_clear()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, real_texts):
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(4):
        lines = [json.dumps({"text": text[:1500]}) for text in real_texts[number * 6 : number * 6 + 6]]
        (folder / f"{number}.jsonl").write_text("\n".join([*lines, '{"text": "a<|endoftext|>b"}']), "utf-8")
    return folder


def built(corpus, tokenizer_path, where, engine, **options):
    return tm.build(corpus, tm.load_tokenizer(tokenizer_path, engine=engine), where, shard_bytes="2KB", **options)


def test_a_build_gives_the_same_store(gpu, corpus, tokenizer_path, tmp_path):
    wanted = built(corpus, tokenizer_path, tmp_path / "cpu", "reference", workers=0)
    found = built(corpus, tokenizer_path, tmp_path / "gpu", "gpu", workers=2)
    assert found.fingerprint == wanted.fingerprint
    assert found._manifest.tokenizer["engine"] == "gpu"
    assert found.verify() == []


def test_a_build_whose_device_is_lost_says_so(corpus, tokenizer_path, tmp_path, capsys):
    wanted = built(corpus, tokenizer_path, tmp_path / "cpu", "reference", workers=0)
    tokenizer = tm.load_tokenizer(tokenizer_path, engine="gpu")
    with simulated_gpu(tmp_path):
        assert tokenizer.choose_engine() == "gpu"  # it is proved
    with simulated_gpu(tmp_path, launches=5) as patch:
        patch.setenv("TOKENMILL_GPU_MEMORY", "300MB")  # not the process that still runs
        found = tm.build(corpus, tokenizer, tmp_path / "gpu", shard_bytes="2KB", workers=2, progress="plain")
    assert found.fingerprint == wanted.fingerprint
    said = [line for line in capsys.readouterr().err.splitlines() if "lost its device" in line]
    assert len(said) == 1
    assert "cudaErrorIllegalAddress" in said[0]


def test_a_build_whose_device_is_killed_gives_the_same_store(gpu, corpus, tokenizer_path, tmp_path, gpu_definition):
    wanted = built(corpus, tokenizer_path, tmp_path / "cpu", "reference", workers=0)
    killer = GpuEngine(gpu_definition)
    encode(killer, ["it runs"])
    killed = []

    def kill(event) -> None:
        if type(event).__name__ == "ShardDone" and not killed:
            killed.append(process_of(killer))
            os.kill(killed[0], signal.SIGKILL)

    found = built(corpus, tokenizer_path, tmp_path / "gpu", "gpu", workers=2, progress=kill)
    assert killed
    assert found.fingerprint == wanted.fingerprint
