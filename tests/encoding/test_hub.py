"""Tokenizers by their name on the Hub: the right files of one commit, the cache when no answer comes, clear errors.

Each fetch is a process of its own, because huggingface_hub reads its environment when imported. They are forked from one
process that has imported what huggingface_hub imports, but not huggingface_hub.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_server import Hub, Repo, hub_server

from tokenmill.encoding.resolve.hub import fetch, hub_name
from tokenmill.errors import TokenizerError

FILES = {
    "tokenizer.json": b'{"model": {"vocab": {}}}',
    "tokenizer_config.json": b'{"eos_token": "</s>"}',
    "special_tokens_map.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "config.json": b"{}",
    "README.md": b"a model",
    "tokenization_model.py": b"raise SystemExit('remote code')",
    "model.safetensors": b"weights",
}
OURS = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}
TOKEN = "hf_aSecretThatNobodyMaySee"

CHILD = """
import json, sys, traceback
from tokenmill.encoding.resolve.hub import fetch
from tokenmill.errors import TokenizerError
for spec in sys.argv[1:]:
    try:
        print(json.dumps({"folder": str(fetch(*spec.split("@", 1)))}))
    except TokenizerError as error:
        print(json.dumps({"error": str(error), "trace": traceback.format_exc()}))
"""
# Forks a process for each line of JSON it reads, and writes its exit status. The arguments are modules to import before.
FORKS = """
import gc, importlib, json, os, signal, sys, tempfile, traceback
from contextlib import suppress
for name in sys.argv[1:]:
    with suppress(ImportError):
        importlib.import_module(name)
assert not any(name.startswith("huggingface_hub") for name in sys.modules)
tempfile.tempdir = None
gc.freeze()
for line in sys.stdin:
    task = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    status = 1
    try:
        signal.alarm(60)
        os.environ.clear()
        os.environ.update(task["environment"])
        os.chdir(task["folder"])
        for stream in (1, 2):
            os.dup2(os.open(task["output"][stream - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv[1:] = task["arguments"]
        exec(task["code"], {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
"""
# The library waits a second between attempts to go on with a download; a test need not.
IMPATIENT = "import time; time.sleep = lambda seconds: None\n"
# Where a wait, which is what comes before a retry, is the failure.
NO_WAIT = "import os, time; time.sleep = lambda seconds: os._exit(9)\n"


@dataclass
class Outcome:
    """What a fetch in another process came to."""

    output: str
    folder: Path
    error: str

    @property
    def files(self) -> dict[str, bytes]:
        assert not self.error, self.error
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


run_forked: Callable[[str, tuple[str, ...], dict[str, str]], tuple[int, str, str]]  # set by the fixture below


@pytest.fixture(scope="module", autouse=True)
def _forks(tmp_path_factory):
    """The process from which fetches are forked."""
    listing = "import sys, tokenmill.encoding.resolve.hub; from huggingface_hub import HfApi; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", listing], check=True, capture_output=True, text=True).stdout
    modules = [name for name in imported.split() if not name.startswith(("huggingface_hub", "_"))]
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        folder = tmp_path_factory.mktemp("output")

        def run(code: str, arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str, str]:
            output = [str(folder / "out"), str(folder / "err")]
            task = {"code": code, "arguments": arguments, "environment": environment, "output": output}
            process.stdin.write(json.dumps({**task, "folder": environment["HOME"]}) + "\n")
            process.stdin.flush()
            status = int(process.stdout.readline())
            return status, *(Path(path).read_text("utf-8") for path in output)

        global run_forked
        run_forked = run
        yield


def fetched_each(environment: dict[str, str], *specs: str, before: str = "") -> list[Outcome]:
    """Fetch in a new process. Whatever comes, the library prints nothing, and no error but ours escapes."""
    status, out, err = run_forked(before + CHILD, specs, environment)
    assert status == 0, err
    assert err == ""
    said = [(line, json.loads(line)) for line in out.splitlines()]
    assert len(said) == len(specs)
    return [Outcome(line, Path(it.get("folder", "")), it.get("error", "")) for line, it in said]


def fetched(environment: dict[str, str], spec: str, before: str = "") -> Outcome:
    return fetched_each(environment, spec, before=before)[0]


def moving() -> tuple[Repo, dict[str, str]]:
    """A repo with a history, and the commits by the name that leads to each."""
    repo = Repo()
    made = {
        name: repo.commit({**FILES, "tokenizer.json": name.encode()}, name)
        for name in ("v1.0", "refs/pr/1", "dev", "main")
    }
    return repo, made


# What is fetched.


@pytest.mark.parametrize("name", ["gpt2", "org/model"])
def test_a_name_gives_the_tokenizer_files_and_nothing_else(tmp_path, name):
    with hub_server({name: FILES}) as hub:
        got = fetched(hub.environment(tmp_path), name)
        assert got.files == {file: FILES[file] for file in OURS}
        assert got.folder.is_relative_to(tmp_path / "hf" / "hub")
        assert hub.files_asked() == OURS


def test_a_revision_is_a_branch_a_tag_or_a_commit(tmp_path):
    repo, commits = moving()
    specs = ["org/model", *(f"org/model@{asked}" for asked in (*commits, commits["dev"]))]
    expected = ["main", *commits, "dev"]
    with hub_server({"org/model": repo}) as hub:
        environment = hub.environment(tmp_path)
        online = fetched_each(environment, *specs)
        assert [got.files["tokenizer.json"].decode() for got in online] == expected
        assert [got.folder.name for got in online] == [commits[name] for name in expected]
        hub.stop()
        assert [got.folder for got in fetched_each(environment, *specs)] == [got.folder for got in online]


def test_a_cached_commit_needs_no_request(tmp_path):
    bare = {"tokenizer.json": b"{}"}  # that the other files do not exist is cached too
    repo = Repo()
    commit = repo.commit(bare, "main")
    with hub_server({"org/model": repo}) as hub:
        environment = hub.environment(tmp_path)
        assert fetched(environment, f"org/model@{commit}").files == bare
        hub.requests.clear()
        assert fetched(environment, f"org/model@{commit}").files == bare
        assert hub.requests == []


def test_without_a_tokenizer_json_the_other_vocabularies_come(tmp_path):
    other = ("README.md", "modeling.py", "pytorch_model.bin", "word2vec.model", "old/vocab.txt")  # none of our business
    expected = {
        "org/sentencepiece": ["tokenizer.model", "added_tokens.json", "config.json"],
        "org/t5": ["spiece.model"],
        "org/xlmr": ["sentencepiece.bpe.model", "special_tokens_map.json"],
        "org/deberta": ["spm.model"],
        "org/qwen": ["qwen.tiktoken", "tokenizer_config.json"],
        "org/unheard-of": ["other-200k.tiktoken"],
        "org/kimi": ["tiktoken.model"],
        "gpt": ["vocab.json", "merges.txt"],
        "bert": ["vocab.txt"],
    }
    repos = {name: {file: f"{name} {file}".encode() for file in (*files, *other)} for name, files in expected.items()}
    with hub_server(repos) as hub:
        environment = hub.environment(tmp_path)
        online = dict(zip(repos, fetched_each(environment, *repos), strict=True))
        for name, files in expected.items():
            assert online[name].files == {file: repos[name][file] for file in files}
        assert not hub.files_asked() & set(other)
        hub.stop()
        assert [got.folder for got in fetched_each(environment, *repos)] == [got.folder for got in online.values()]


def test_a_hub_that_does_not_list_files_is_asked_for_the_usual_names(tmp_path):
    files = {"tokenizer.model": b"pieces", "config.json": b"{}", "modeling.py": b"", "model.bin": b""}
    with hub_server({"org/model": files}) as hub:
        hub.trouble = lambda method, path: 500 if path.startswith("/api/models/") else None
        got = fetched(hub.environment(tmp_path), "org/model")
        assert got.files == {"tokenizer.model": b"pieces", "config.json": b"{}"}


def test_a_repo_without_tokenizer_says_what_it_holds(tmp_path):
    repos = {
        "org/none": ["README.md", "model.safetensors", "config.json"],
        "org/half": ["README.md", "model.safetensors", "vocab.json"],
        "org/below": ["README.md", "model.safetensors", "tokenizer/tokenizer.json"],
    }
    with hub_server({name: dict.fromkeys(files, b"{}") for name, files in repos.items()}) as hub:
        for (name, files), got in zip(repos.items(), fetched_each(hub.environment(tmp_path), *repos), strict=True):
            assert f"{name}@main has no tokenizer" in got.error
            assert all(file in got.error for file in files)


def test_nothing_is_written_outside_the_cache(tmp_path):
    (tmp_path / "tmp").mkdir()
    with hub_server({"org/model": FILES, "org/pieces": {"spiece.model": b"1"}, "org/none": {"README.md": b""}}) as hub:
        environment = hub.environment(tmp_path, TMPDIR=str(tmp_path / "tmp"))
        fetched_each(environment, "org/model", "org/pieces", "org/none")
    assert {path.name for path in tmp_path.iterdir()} == {"hf", "tmp"}
    assert list((tmp_path / "tmp").iterdir()) == []


# Branches move.


def test_all_files_are_of_one_commit_when_the_branch_moves_between_requests(tmp_path):
    repo = Repo()
    first = repo.commit(dict.fromkeys(OURS, b"old"), "main")

    def move(method: str, path: str) -> None:
        if len([asked for _, asked in hub.requests if "/resolve/" in asked]) == 2:  # one was answered
            repo.commit(dict.fromkeys(OURS, b"new"), "main")

    with hub_server({"org/model": repo}) as hub:
        hub.trouble = move
        environment = hub.environment(tmp_path)
        got = fetched(environment, "org/model")
        assert len(repo.commits) == 2
        assert got.files == dict.fromkeys(OURS, b"old")
        assert got.folder.name == first
        # The cache now knows of the newer commit but holds no vocabulary of it: that is said, not made up for.
        assert (
            "org/model@main is not in the cache" in fetched({**environment, "HF_HUB_OFFLINE": "1"}, "org/model").error
        )
        assert fetched(environment, "org/model").files == dict.fromkeys(OURS, b"new")


def test_a_moved_branch_is_followed(tmp_path):
    with hub_server({"org/model": dict.fromkeys(OURS, b"old")}) as hub:
        environment = hub.environment(tmp_path)
        assert set(fetched(environment, "org/model").files.values()) == {b"old"}
        hub.repos["org/model"].commit(dict.fromkeys(OURS, b"new"), "main")
        assert set(fetched(environment, "org/model").files.values()) == {b"new"}
        hub.stop()
        assert set(fetched(environment, "org/model").files.values()) == {b"new"}


def test_an_update_cut_short_leaves_the_snapshot_before_it(tmp_path):
    old, new = ({file: f"{age} {file}".encode() for file in OURS} for age in ("old", "new"))
    with hub_server({"org/model": old}) as hub:
        environment = hub.environment(tmp_path)
        fetched(environment, "org/model")
        hub.repos["org/model"].commit(new, "main")
        hub.trouble = lambda method, path: "drop" if method == "GET" and path.endswith("/tokenizer.json") else None
        assert fetched(environment, "org/model", before=IMPATIENT).error
        hub.stop()
        assert fetched(environment, "org/model").files == old


# No connection.


def test_offline_mode_uses_the_cache(tmp_path):
    with hub_server({"org/model": FILES}) as hub:
        environment = hub.environment(tmp_path)
        online = fetched(environment, "org/model")
        hub.requests.clear()
        offline = fetched({**environment, "HF_HUB_OFFLINE": "1"}, "org/model")
        assert offline.folder == online.folder
        assert hub.requests == []


def test_offline_mode_without_cache_says_so(tmp_path):
    with hub_server({"org/model": FILES}) as hub:
        error = fetched(hub.environment(tmp_path, HF_HUB_OFFLINE="1"), "org/model@v2").error
        assert hub.requests == []
    assert "org/model@v2 is not in the cache" in error
    assert "HF_HUB_OFFLINE" in error
    assert str(tmp_path / "hf") in error
    assert "a tokenizer.json, a folder that holds one, bytes or demo" in error


def test_a_cache_that_the_library_filled_serves_offline(tmp_path):
    """`hf download` on a machine with a connection is how closed clusters get their models."""
    files = {"tokenizer.json": b"{}", "README.md": b""}
    with hub_server({"org/model": files}) as hub:
        environment = hub.environment(tmp_path)
        code = "import huggingface_hub; huggingface_hub.snapshot_download('org/model')"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, timeout=60)
        assert fetched({**environment, "HF_HUB_OFFLINE": "1"}, "org/model").files == files
        hub.stop()
        assert fetched(environment, "org/model").files == files


def test_a_cache_known_to_lack_a_file_is_not_taken_for_the_tokenizer(tmp_path):
    with hub_server({"org/model": FILES}) as hub:
        environment = hub.environment(tmp_path)
        code = "import huggingface_hub; huggingface_hub.snapshot_download('org/model', allow_patterns='tokenizer.json')"
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, timeout=60)
        assert "not in the cache" in fetched({**environment, "HF_HUB_OFFLINE": "1"}, "org/model").error
        assert set(fetched(environment, "org/model").files) == OURS


def refused(hub: Hub) -> None:
    hub.stop()


def silent(hub: Hub) -> None:
    hub.trouble = lambda method, path: "hang" if "/resolve/" in path else None


def hanging_up(hub: Hub) -> None:
    hub.trouble = lambda method, path: "drop"


def failing(hub: Hub) -> None:
    hub.trouble = lambda method, path: 500


def overloaded(hub: Hub) -> None:
    hub.trouble = lambda method, path: 503


def limiting(hub: Hub) -> None:
    hub.trouble = lambda method, path: 429


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (silent, "check the connection"),
        (hanging_up, "check the connection"),
        (failing, "answered 500"),
        (overloaded, "answered 503"),
        (limiting, "answered 429"),
        (refused, "refused"),
    ],
)
def test_a_hub_in_trouble_is_named_and_does_not_matter_once_the_files_are_cached(tmp_path, happens, says):
    repos = {"org/model": {"tokenizer.json": b"{}"}, "org/other": FILES}
    with hub_server(repos) as hub:
        environment = hub.environment(tmp_path, HF_HUB_ETAG_TIMEOUT="1")
        assert fetched(environment, "org/model").files == repos["org/model"]
        healthy = hub.trouble
        happens(hub)
        cached, other = fetched_each(environment, "org/model", "org/other", before=NO_WAIT)
        assert cached.files == repos["org/model"]
        assert "org/other@main" in other.error
        assert says in other.error
        assert "try again" in other.error
        assert hub.address.removeprefix("http://") in other.error
        if happens is not refused:
            hub.trouble = healthy
            assert set(fetched(environment, "org/other").files) == OURS


@pytest.mark.parametrize("file", sorted(OURS))
@pytest.mark.parametrize(("asked", "trouble", "says"), [("GET", "drop", "could not be fetched"), ("HEAD", 503, "503")])
def test_trouble_within_a_download_is_an_error_and_the_next_run_succeeds(tmp_path, file, asked, trouble, says):
    with hub_server({"org/model": FILES}) as hub:
        commit = hub.repos["org/model"].names["main"]
        healthy = hub.trouble
        environment = hub.environment(tmp_path)
        # Which file it strikes must not matter; only the first request of all, by the branch's name, is answered.
        hub.trouble = lambda method, path: trouble if method == asked and path.endswith(f"/{commit}/{file}") else None
        error = fetched(environment, "org/model", before=IMPATIENT).error
        assert "org/model@main" in error
        assert says in error
        assert "try again" in error
        # What did come is a part, and is not taken for the whole.
        offline = fetched_each({**environment, "HF_HUB_OFFLINE": "1"}, "org/model", f"org/model@{commit}")
        assert all("not in the cache" in got.error for got in offline)
        hub.trouble = healthy
        assert fetched(environment, "org/model").files == {name: FILES[name] for name in OURS}


def test_an_address_that_is_no_hub_is_named(tmp_path):
    with hub_server({}) as hub:
        error = fetched(hub.environment(tmp_path, HF_ENDPOINT=hub.address + "/mirror"), "org/model").error
    assert "org/model@main" in error
    assert "no such model" in error


# Who may read.


def private() -> Repo:
    repo = Repo(token=TOKEN)
    repo.commit(FILES, "main")
    return repo


def test_a_private_repo_opens_to_the_token_in_the_environment(tmp_path):
    with hub_server({"org/secret": private()}) as hub:
        got = fetched(hub.environment(tmp_path, HF_TOKEN=TOKEN), "org/secret")
    assert set(got.files) == OURS
    assert TOKEN not in got.output


def test_a_private_repo_opens_to_the_token_of_the_login(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(TOKEN)
    with hub_server({"org/secret": private()}) as hub:
        got = fetched(hub.environment(tmp_path), "org/secret")
    assert set(got.files) == OURS
    assert TOKEN not in got.output


def test_a_private_repo_without_a_token_says_how_to_log_in(tmp_path):
    with hub_server({"org/secret": private()}) as hub:
        error = fetched(hub.environment(tmp_path), "org/secret").error
    assert "org/secret@main" in error
    assert "private" in error
    assert "hf auth login" in error
    assert "HF_TOKEN" in error


# The last two cannot be sent in a header; the HTTP client's own error would show them.
@pytest.mark.parametrize("wrong", ["hf_anotherSecret", "hf_another\vSecret", "hf_anotherSécret"])
def test_a_wrong_token_is_refused_and_never_shown(tmp_path, wrong):
    with hub_server({"org/secret": private()}) as hub:
        got = fetched(hub.environment(tmp_path, HF_TOKEN=wrong), "org/secret")
    assert "org/secret@main" in got.error
    assert "HF_TOKEN" in got.error
    assert "hf_another" not in got.output


def test_a_gated_repo_says_to_ask_for_access(tmp_path):
    repo = Repo(gated=True)
    repo.commit(FILES, "main")
    with hub_server({"org/gated": repo}) as hub:
        for token in ({}, {"HF_TOKEN": TOKEN}):
            got = fetched(hub.environment(tmp_path, **token), "org/gated")
            assert "org/gated@main is gated: request access" in got.error
            assert "hf auth login" in got.error
            assert TOKEN not in got.output


def test_a_name_that_is_not_there(tmp_path):
    with hub_server({"org/model": FILES}) as hub:
        for token in ({}, {"HF_TOKEN": TOKEN}):  # without one the Hub answers 401, with one 404
            got = fetched(hub.environment(tmp_path, **token), "org/modle")
            assert "org/modle@main: no such model" in got.error
            assert "check the name" in got.error
            assert TOKEN not in got.output


def test_a_revision_that_is_not_there(tmp_path):
    with hub_server({"org/model": FILES}) as hub:
        for spec in (f"org/model@{revision}" for revision in ("v9", "0" * 40)):
            error = fetched(hub.environment(tmp_path), spec).error
            assert f"{spec}: org/model has no branch, tag or commit" in error
            assert "check what follows the @" in error


# A cache that cannot be written.


def test_a_cache_folder_that_is_no_folder_is_named(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "hub").write_text("not a folder")
    with hub_server({"org/model": FILES}) as hub:
        error = fetched(hub.environment(tmp_path), "org/model").error
    assert "org/model@main" in error
    assert str(tmp_path / "hf" / "hub") in error
    assert "HF_HOME" in error


def test_no_room_for_a_file_is_said_and_the_next_run_succeeds(tmp_path):
    pytest.importorskip("resource")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
    files = {**FILES, "tokenizer.json": b"x" * 100_000}
    with hub_server({"org/model": files}) as hub:
        environment = hub.environment(tmp_path)
        error = fetched(environment, "org/model", before=limit).error
        assert "org/model@main: no space in the cache" in error
        assert "HF_HOME" in error
        assert fetched(environment, "org/model").files["tokenizer.json"] == files["tokenizer.json"]


# Names.


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("gpt2", ("gpt2", None)),
        ("Qwen/Qwen3-0.6B-Base", ("Qwen/Qwen3-0.6B-Base", None)),
        ("Qwen/Qwen3-0.6B-Base@main", ("Qwen/Qwen3-0.6B-Base", "main")),
        ("gpt2@refs/pr/7", ("gpt2", "refs/pr/7")),
        ("org/model@v1.0-rc@2", ("org/model", "v1.0-rc@2")),
        (f"org/model@{'a1' * 20}", ("org/model", "a1" * 20)),
    ],
)
def test_names_on_the_hub(spec, parts):
    assert hub_name(spec) == parts


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "/models/gpt2",
        "./gpt2",
        "~/gpt2",
        "../gpt2",
        "org/../gpt2",
        "org/model@../../main",
        "a/b/c",
        "org/",
        "/org",
        "org\\model",
        "C:\\models",
        "tokenizer.json",
        "org/tokenizer.model",
        "qwen.tiktoken",
        "runs@v2/tokenizer.json",
        "tokenizer.json@v2",
        "org/model@",
        "@main",
        "org/model@a b",
        "my model",
        "org/modèle",
        "org--model",
        ".hidden",
        "model-",
        "org/model.git",
        "x" * 97,
        "hf://org/model",
        "gpt2\n",
    ],
)
def test_what_cannot_be_a_name_on_the_hub(spec):
    assert hub_name(spec) is None


@pytest.mark.parametrize(("name", "revision"), [("../etc", None), ("org/model", "../../main"), ("a@b", "main")])
def test_a_name_that_cannot_be_is_not_asked_for(name, revision):
    with pytest.raises(TokenizerError, match="is not a name on the Hugging Face Hub"):
        fetch(name, revision)


def test_without_the_library_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TokenizerError, match="pip install huggingface_hub"):
        fetch("org/model")


def test_the_library_is_imported_only_when_needed():
    code = "import sys, tokenmill.encoding.resolve.hub as hub; hub.hub_name('gpt2'); sys.exit('huggingface_hub' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
