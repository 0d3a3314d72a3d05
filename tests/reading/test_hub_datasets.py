"""Datasets on the Hugging Face Hub as input: their names, which files are read, who may read, and servers in trouble."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from types import SimpleNamespace

import pytest
from hub_datasets import TOKEN, as_the_hub, hub_of_module, jsonl, make_empty_hub, parquet, pauses, publish  # noqa: F401

import tokenmill as tm
from tokenmill.errors import MissingInputError, TokenmillError, UnreachableError, UsageError
from tokenmill.known_datasets import KNOWN, known_dataset
from tokenmill.reading import read_piece, split
from tokenmill.reading.hub_client import read_range
from tokenmill.reading.hub_names import hub_input, parts_of, pinned_input, without_commit
from tokenmill.split_names import files_by_split

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(empty_hub):
    return empty_hub


def paths(*inputs: str, **options: object) -> list[str]:
    """The paths of the files that are read, in the repository."""
    return [parts_of(file.path)[2] for file in tm.read(*inputs, **options).files]


def texts(source: tm.Source) -> list[str]:
    pieces = [piece for file in source.files for piece in split(file, source, 1 << 20)]
    return [text for piece in pieces for block in read_piece(piece, source) for text in block.values.to_pylist()]


# Names.


@pytest.mark.parametrize(
    ("item", "repo", "revision", "path"),
    [
        ("finewebedu", "HuggingFaceFW/fineweb-edu", None, ""),
        ("FineWeb-Edu", "HuggingFaceFW/fineweb-edu", None, ""),
        ("finewebedu@v1.4.0", "HuggingFaceFW/fineweb-edu", "v1.4.0", ""),
        ("tinystories", "roneneldan/TinyStories", None, "data/*.parquet"),
        ("org/name", "org/name", None, ""),
        ("org/name@v1", "org/name", "v1", ""),
        ("hf://datasets/org/name", "org/name", None, ""),
        ("hf://datasets/org/name/", "org/name", None, ""),
        ("hf://datasets/org/name@v1/data/*.parquet", "org/name", "v1", "data/*.parquet"),
        (
            "hf://datasets/org/name@refs/convert/parquet/en/0.parquet",
            "org/name",
            "refs/convert/parquet",
            "en/0.parquet",
        ),
        ("hf://datasets/org/name@a%2Fb/x.txt", "org/name", "a/b", "x.txt"),
        ("hf://datasets/squad@v1", "squad", "v1", ""),
        (f"hf://datasets/org/name@{COMMIT}/x@y.txt", "org/name", COMMIT, "x@y.txt"),
    ],
)
def test_names_of_datasets(item, repo, revision, path):
    found = hub_input(item)
    assert (found.repo, found.revision, found.path) == (repo, revision, path)


@pytest.mark.parametrize(
    "item",
    ["a.txt", "org/a.jsonl", "a/b/c", "/org/name", "./org", "org/*.txt", "@org/name", "s3://org/name", "~/x", "nope"],
)
def test_what_is_no_name_of_a_dataset(item):
    assert hub_input(item) is None


@pytest.mark.parametrize(
    "url", ["hf://models/org/name", "hf://datasets/", "hf://datasets/a--b/c", "hf://datasets/o/n/../x"]
)
def test_a_wrong_url_says_how_it_is_spelled(url):
    with pytest.raises(UsageError, match="hf://datasets/ORG/NAME"):
        tm.read(url)


def test_a_local_path_comes_before_a_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("finewebedu", "org/name"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("here")
        assert tm.read(folder).files[0].path == str(tmp_path / folder / "a.txt")


def test_the_table_of_short_names_is_sound():
    assert sorted(KNOWN) == list(KNOWN)
    for name, known in KNOWN.items():
        assert known_dataset(name) is known
        assert hub_input(f"hf://datasets/{known.repo}") is not None
        assert known.config is None or known.files is None
        assert known.about


@pytest.mark.parametrize(
    ("typed", "meant"), [("finewebed", "finewebedu"), ("tinystorys", "tinystories"), ("wiki", "wiki")]
)
def test_an_unknown_short_name_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(
        MissingInputError, match=f"no such file or folder: {typed}; did you mean {meant}.*datasets with a short"
    ):
        tm.read(typed)


def test_a_pinned_input_and_paths_without_commits():
    assert pinned_input("finewebedu@main", COMMIT) == f"finewebedu@{COMMIT}"
    assert pinned_input("hf://datasets/o/n@main/a/*.txt", COMMIT) == f"hf://datasets/o/n@{COMMIT}/a/*.txt"
    assert without_commit(f"hf://datasets/o/n@{COMMIT}/a/b.txt") == "hf://datasets/o/n/a/b.txt"
    assert without_commit("/o/n@x/a") == "/o/n@x/a"


def test_the_name_of_a_dataset_is_not_that_of_a_split():
    names = [f"hf://datasets/train/test@{COMMIT}/{name}" for name in ("data/a.jsonl", "valid/b.jsonl")]
    assert files_by_split(names) == {"validation": names[1:]}


# Which files.

FILES = {
    "README.md": b"",
    "LICENSE.txt": b"",
    ".hidden/a.jsonl": jsonl("x"),
    "en/train-1.jsonl": jsonl("a"),
    "en/train-2.jsonl": jsonl("b"),
    "en/test.jsonl": jsonl("c"),
    "de/deep/train.jsonl": jsonl("d"),
}
EN = ["en/train-1.jsonl", "en/train-2.jsonl"]


@pytest.mark.parametrize(
    ("header", "options", "files"),
    [
        ("data_files: 'en/*.jsonl'", {}, ["en/test.jsonl", *EN]),
        ("data_files: ['en/train-*', 'de/**']", {}, ["de/deep/train.jsonl", *EN]),
        (
            "data_files: [{split: train, path: 'en/train-*'}, {split: test, path: en/test.jsonl}]",
            {},
            ["en/test.jsonl", *EN],
        ),
        ("data_files: [{split: train, path: ['en/train-*']}, {split: test, path: x}]", {"split": "train"}, EN),
        ("data_files: {train: 'en/train-*', exam: en/test.jsonl}", {"split": "exam"}, ["en/test.jsonl"]),
        ("data_files: {validation: en/test.jsonl}", {"split": "val"}, ["en/test.jsonl"]),
        ("data_dir: en", {"split": "train"}, EN),
        ("data_dir: en\n  data_files: 'train-?.jsonl'", {}, EN),
        ("data_files: '**/*'", {}, ["LICENSE.txt", "de/deep/train.jsonl", "en/test.jsonl", *EN]),
    ],
)
def test_the_files_of_a_configuration(hub, header, options, files):
    readme = f"---\nlicense: mit\nconfigs:\n- config_name: only\n  {header}\n---\n# Text\n".encode()
    publish(hub, "org/name", {**FILES, "README.md": readme})
    assert paths("org/name", **options) == files


CONFIGS = b"---\nconfigs:\n- {config_name: english, data_files: 'en/train*'}\n- {config_name: german, data_files: 'de/**'}\n---\n"


def test_configurations_are_chosen_by_name_or_by_default(hub):
    repo = publish(hub, "org/name", {**FILES, "README.md": CONFIGS})
    with pytest.raises(UsageError, match=r"has 2 configurations; choose one with --config.*english, german"):
        tm.read("org/name")
    with pytest.raises(UsageError, match="no configuration 'french'; it has english, german"):
        tm.read("org/name", config="french")
    assert paths("org/name", config="german") == ["de/deep/train.jsonl"]
    repo.commit({**FILES, "README.md": CONFIGS.replace(b"german,", b"german, default: true,")}, "main")
    assert paths("org/name") == ["de/deep/train.jsonl"]
    repo.commit({**FILES, "README.md": CONFIGS.replace(b"english", b"default")}, "main")
    assert paths("org/name") == EN


def test_without_configurations_names_show_the_splits(hub):
    publish(hub, "org/name", FILES)
    assert paths("org/name") == ["de/deep/train.jsonl", "en/test.jsonl", *EN]
    assert paths("org/name", split="train") == ["de/deep/train.jsonl", *EN]
    with pytest.raises(UsageError, match="org/name has no split 'exam'; it has train, test"):
        tm.read("org/name", split="exam")
    with pytest.raises(
        UsageError, match="org/name has no configurations; choose files with hf://datasets/org/name/PATH"
    ):
        tm.read("org/name", config="en")


def test_parquet_is_read_where_there_are_several_formats(hub):
    publish(hub, "org/name", {"a.jsonl": jsonl("a"), "p/a.parquet": parquet("a"), "notes.txt": b"notes"})
    assert paths("org/name") == ["p/a.parquet"]
    assert tm.read("org/name").ignored_by_reason == {"not in the format that is read (parquet)": 2}


def test_every_file_of_a_folder_is_read_or_ignored_for_a_reason(hub):
    publish(hub, "org/name", FILES)
    source = tm.read("hf://datasets/org/name/**", split="train")
    reasons = {parts_of(path)[2]: reason for path, reason in source.ignored}
    assert reasons == {
        ".hidden/a.jsonl": "hidden",
        "README.md": "not a data file (.md)",
        "LICENSE.txt": "another split",
        "en/test.jsonl": "another split",
    }


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("en", ["en/test.jsonl", *EN]),
        ("en/test.jsonl", ["en/test.jsonl"]),
        ("en/train-*", EN),
        ("**/train*.jsonl", ["de/deep/train.jsonl", *EN]),
    ],
)
def test_files_are_chosen_by_path(hub, path, files):
    publish(hub, "org/name", {**FILES, "README.md": CONFIGS})
    assert paths(f"hf://datasets/org/name/{path}") == files
    with pytest.raises(UsageError, match="give a path or --config"):
        tm.read(f"hf://datasets/org/name/{path}", config="english")


@pytest.mark.parametrize(
    ("inputs", "options", "says"),
    [
        (["hf://datasets/org/name/fr"], {}, "has no file or folder fr"),
        (["hf://datasets/org/name/fr/*"], {}, "no file that matches fr/\\*"),
        (["org/name"], {"revision": "v9"}, "no branch, tag or commit 'v9'"),
        (["org/nmae"], {}, "no such dataset on .*There is no file or folder org/nmae here either"),
        (
            ["hf://datasets/org/name/en", "hf://datasets/org/bad"],
            {},
            "configurations in the README.md of org/bad cannot be read",
        ),
    ],
)
def test_what_is_not_there_is_named(hub, inputs, options, says):
    publish(hub, "org/name", FILES)
    publish(hub, "org/bad", {"README.md": b"---\nconfigs: [{data_files: x}]\n---\n"})
    with pytest.raises(UsageError if "README" in says else MissingInputError, match=says):
        tm.read(*inputs, **options)


def test_a_revision_that_is_not_there_is_named(hub):
    publish(hub, "org/name", FILES)
    with pytest.raises(UsageError, match="no branch, tag or commit 'v9'"):
        tm.read("hf://datasets/org/name@v9")


def test_options_of_datasets_need_a_dataset(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    for options in ({"config": "x"}, {"revision": "x"}, {"streaming": True}):
        with pytest.raises(UsageError, match=f"--{next(iter(options))} .*no input is one"):
            tm.read(tmp_path, **options)


def test_a_short_name_brings_configuration_split_and_field_unless_given(hub):
    code = {"data/python/data.json": b'{"content": "print()", "other": "o"}\n'}
    publish(hub, "bigcode/the-stack-smol", code)
    assert texts(tm.read("the-stack-smol")) == ["print()"]
    assert texts(tm.read("the-stack-smol", text_field="other")) == ["o"]
    stories = {f"data/{name}-00000-of-00001.parquet": parquet(name) for name in ("train", "validation")}
    publish(hub, "roneneldan/TinyStories", {**stories, "TinyStories-train.txt": b""})
    assert texts(tm.read("tinystories")) == ["train"]
    assert texts(tm.read("tinystories", split="validation")) == ["validation"]
    with pytest.raises(UsageError, match="different fields"):
        tm.read("tinystories", "the-stack-smol")


def test_a_list_may_name_datasets(hub, tmp_path):
    publish(hub, "org/name", FILES)
    (tmp_path / "list.txt").write_text("hf://datasets/org/name/en/test.jsonl\norg/name@main\n")
    assert paths(f"@{tmp_path}/list.txt", split="test") == ["en/test.jsonl"]


def test_a_large_dataset_is_listed_in_pages_and_once(hub):
    files = {f"data/{number:03}.jsonl": jsonl("x") for number in range(45)}
    publish(hub, "org/name", files)
    hub.page = 10
    assert paths("org/name") == sorted(files)
    assert sum("/tree/" in path for _, path in hub.requests) == 5
    hub.requests.clear()
    assert paths("org/name") == sorted(files)
    assert [path for _, path in hub.requests] == ["/api/datasets/org/name/revision/main"]


# Who may read.


def refused(*inputs: str) -> str:
    """The traceback of an error."""
    with pytest.raises(TokenmillError) as caught:
        texts(tm.read(*inputs))
    return "".join(traceback.format_exception(caught.value))


def test_a_private_dataset_opens_to_the_token(hub, monkeypatch):
    publish(hub, "org/secret", FILES, token=TOKEN)
    error = refused("org/secret")
    assert "or it is private" in error
    assert "hf auth login" in error
    for wrong in ("hf_anotherSecret", "hf_anotherSécret"):
        monkeypatch.setenv("HF_TOKEN", wrong)
        error = refused("org/secret")
        assert "HF_TOKEN" in error
        assert "hf_another" not in error
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert texts(tm.read("org/secret", split="train")) == ["d", "a", "b"]


def test_a_gated_dataset_says_to_ask_for_access(hub, monkeypatch):
    publish(hub, "org/gated", FILES, gated=True)
    for token in (None, TOKEN):
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        error = refused("org/gated")
        assert "org/gated@main is gated: request access" in error
        assert TOKEN not in error


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])  # one of them is read in a child process
def test_a_gated_dataset_whose_files_are_listed_but_refused(hub, tmp_path, tokenizer_path, name):
    """The Hub tells everyone what is in a gated dataset."""
    publish(hub, "org/gated", {name: jsonl("a") if name == "a.jsonl" else parquet("a")})
    hub.trouble = lambda method, path: (403, {"X-Error-Code": "GatedRepo"}) if "/resolve/" in path else None
    with pytest.raises(UsageError, match=f"/{name} is gated: request access"):
        tm.build("org/gated", tokenizer_path, tmp_path / "store", workers=0, engine="tokenizers", progress="quiet")


def test_a_token_is_not_sent_to_the_host_of_a_redirect(hub, monkeypatch):
    publish(hub, "org/name", FILES, token=TOKEN, lfs=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert texts(tm.read("hf://datasets/org/name/en/test.jsonl", streaming=True)) == ["c"]
    sent = {(host == hub.address, token) for host, token in hub.tokens}
    assert sent == {(True, f"Bearer {TOKEN}"), (False, None)}


def test_a_signed_address_is_used_until_it_expires(hub):
    publish(hub, "org/name", {"a.txt": b"0123456789"}, lfs=True)
    url = tm.read("org/name").files[0].path
    hub.requests.clear()
    for start in range(4):
        assert read_range(url, start, start + 2) == b"0123456789"[start : start + 2]
    assert Counter("/resolve/" in path for _, path in hub.requests) == {True: 1, False: 4}
    hub.signature += "1"
    assert read_range(url, 4, 6) == b"45"
    assert sum("/resolve/" in path for _, path in hub.requests) == 2


# Servers in trouble.


@pytest.mark.parametrize(
    "trouble", [429, 500, 503, "drop", (429, {"Retry-After": "7"}), (429, {"RateLimit": '"api";r=0;t=7'})]
)
@pytest.mark.parametrize("where", ["/revision/", "/tree/", "/resolve/", "/blob/"])
def test_a_request_that_failed_is_made_again(hub, pauses, where, trouble):  # noqa: F811
    readme = f"{where} {trouble}".encode()  # another commit for each test
    publish(hub, "org/name", {"README.md": readme, "data/a.jsonl": jsonl("text " * 99)}, lfs=True)
    left = [trouble, trouble]
    hub.trouble = lambda method, path: left.pop() if left and where in path else None
    assert texts(tm.read("org/name", streaming=True)) == ["text " * 99]
    assert left == []
    if isinstance(trouble, tuple) and where != "/tree/":  # there, the library waits a second more than it is asked to
        assert pauses == [7, 7]


def test_a_redirect_in_a_circle_is_an_error_at_once(hub, pauses):  # noqa: F811
    publish(hub, "org/name", {"circle.txt": b"0123456789"})
    url = tm.read("org/name").files[0].path
    hub.trouble = lambda method, path: (302, {"Location": f"{path}?token=secret"}) if "/resolve/" in path else None
    with pytest.raises(UnreachableError, match="redirects the request in a circle") as caught:
        read_range(url, 0, 5)
    assert url in str(caught.value)
    assert "secret" not in str(caught.value)
    assert pauses == []


@pytest.mark.parametrize(
    ("item", "trouble", "patience"),
    [
        ("org/name", "drop", 2),  # it may be a path that is not there
        ("org/name", 503, 120),
        ("hf://datasets/org/name", "drop", 120),
        ("tinystories", "drop", 120),
    ],
)
def test_for_how_long_the_first_request_is_made_again(hub, monkeypatch, item, trouble, patience):
    clock = [0.0]
    # Only for requests: other threads of this process wait by the real clock.
    own = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr("tokenmill.reading.hub_client.time", own)
    hub.trouble = lambda method, path: trouble
    with pytest.raises(UnreachableError):
        tm.read(item)
    assert patience <= clock[0] <= patience + 10


@pytest.mark.parametrize(
    ("trouble", "says"), [(503, "answered 503"), ("drop", "could not be fetched"), (429, "too many requests")]
)
def test_a_server_that_stays_in_trouble_is_named(hub, pauses, monkeypatch, trouble, says):  # noqa: F811
    publish(hub, "org/name", FILES, lfs=True)
    source = tm.read("hf://datasets/org/name/en/test.jsonl", streaming=True)
    monkeypatch.setattr("tokenmill.reading.hub_client.RETRY_SECONDS", -1.0)
    monkeypatch.setattr("tokenmill.reading.hub_client.LONGEST_WAIT", -1.0)
    hub.trouble = lambda method, path: trouble if "/blob/" in path else None
    with pytest.raises(UnreachableError, match=says) as caught:
        texts(source)
    assert re.search("X-Amz|Bearer", "".join(traceback.format_exception(caught.value))) is None
