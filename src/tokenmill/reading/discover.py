"""Which files an input stands for: paths, globs, folders and lists. Each file gets a format, a codec and an identity.

There may be 100,000 files, and they are listed before every build, so each costs one stat and little more.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.display import shown
from tokenmill.errors import InputError, MissingInputError, UnreachableError, UsageError
from tokenmill.io.object_store import Object, check_url, is_bucket_url, is_url
from tokenmill.io.object_store import listing as list_objects
from tokenmill.io.object_store import read as read_object
from tokenmill.io.object_store import stat as stat_object
from tokenmill.option_types import option_name
from tokenmill.reading.codecs import CODECS
from tokenmill.reading.files import Ignored, SourceFile, tag_of
from tokenmill.reading.formats import REGISTERED
from tokenmill.reading.globs import fixed_part, glob_expression
from tokenmill.reading.hub_files import HUB, DataFiles, HubChoice, chosen_files, pin
from tokenmill.reading.hub_names import SCHEME, HubInput, Pin, hub_input, pinned_path, unknown_name
from tokenmill.reading.layouts import FORMAT, DatasetFolder
from tokenmill.user_cache import read_cached

FORMATS = tuple(REGISTERED)
SUFFIXES = {suffix: name for name, registration in REGISTERED.items() for suffix in registration.suffixes}
# Read as text when named or matched by a glob, but left out of folders: a README.md beside the data is not data.
PROSE_AND_CODE = frozenset({
    ".md", ".markdown", ".rst", ".tex", ".html", ".htm", ".xml", ".py", ".pyi", ".ipynb", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".cu", ".rs", ".go", ".java", ".kt", ".js", ".ts", ".jsx", ".tsx", ".rb", ".php", ".swift", ".scala", ".sh", ".sql",
    ".r", ".jl", ".lua", ".pl", ".hs", ".yaml", ".yml", ".toml", ".log", ".srt", ".vtt",
})  # fmt: skip
MOST_NESTED_LISTS = 8
LONGEST_PATH = 1000  # characters of a string that is looked at as a path
# How the manifest of a token store starts. A folder is a store by what its manifest says, not by the names in it.
_STORE_MANIFEST = re.compile(rb'\s*\{\s*"format"\s*:\s*"tokenmill-store"')


@dataclass(slots=True)
class Listing:
    """What is found out while inputs are listed, beside the files to read."""

    ignored: list[Ignored] = field(default_factory=list)
    sorts_as: dict[str, str] = field(default_factory=dict)  # for files that are not read in the order of their names
    missing: list[str] = field(default_factory=list)  # files that a folder says it has, but has not
    hub: HubChoice = field(default_factory=HubChoice)
    hub_inputs: list[HubInput] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)  # the commits of datasets on the Hub


def _format_of(path: str, format: str, *, prose: bool) -> tuple[str | None, str | None]:
    """The format and codec by the name of a file: ("jsonl", "zstd") for a.jsonl.zst. None where the name does not show it.

    `prose` is whether prose and code are read as text.
    """
    suffix = _suffix(path)
    codec = CODECS.get(suffix)
    if codec:
        suffix = _suffix(path[: -len(suffix)])
    if format != "auto":
        return format, codec
    return "text" if prose and suffix in PROSE_AND_CODE else SUFFIXES.get(suffix), codec


def _suffix(path: str) -> str:
    dot = path.rfind(".")
    return path[dot:].lower() if dot > path.rfind("/") + 1 else ""


def looks_like_path(text: str) -> bool:
    """Whether a string names files rather than being a text: an URL, a dataset, what exists, or a name with a suffix."""
    if not 0 < len(text) < LONGEST_PATH or text != text.strip() or not text.isprintable():
        return False
    suffix = _suffix(text)
    if len(suffix) > 2 and (suffix in SUFFIXES or suffix in CODECS or suffix in PROSE_AND_CODE):
        return " " not in text or "/" in text
    if " " not in text and (is_url(text) or (len(text) > 5 and hub_input(text) is not None)):  # not "N/A"
        return True
    return os.path.exists(text) or (glob.has_magic(text) and next(glob.iglob(text), None) is not None)


def files_of(item: str, format: str, listing: Listing, depth: int = 0) -> Iterator[SourceFile]:
    """The files that an input stands for, with absolute paths. Everything else in a folder is noted in `listing`."""
    item = os.path.expanduser(item)
    if is_url(item) and not item.startswith(SCHEME):
        yield from _behind_url(item, format, listing)
        return
    try:
        info = os.stat(item)
    except (OSError, ValueError):
        info = None
    if info is not None and stat.S_ISDIR(info.st_mode):
        yield from _in_folder(os.path.abspath(item), format, listing)
    elif info is not None:
        yield _described(os.path.abspath(item), info, format)
    elif item.startswith("@"):
        yield from _in_list(item[1:], format, listing, depth)
    elif (on_hub := hub_input(item)) is not None:
        yield from _on_hub(item, on_hub, format, listing)
    elif glob.has_magic(item):
        yield from _matching(item, format, listing)
    else:
        remedy = "; is it a text? A list holds texts: [text]" if len(item.split()) > 4 else unknown_name(item)
        if os.path.exists(slashed := item.replace("\\", "/")):
            remedy = f"; is it {slashed}?"
        raise MissingInputError(f"no such file or folder: {item if len(item) < 300 else shown(item)}{remedy}")


def _in_folder(folder: str, format: str, listing: Listing) -> Iterator[SourceFile]:
    for entry in _walk(folder, listing):
        path = entry.path
        chosen, codec = _format_of(path, format, prose=False)
        try:
            info = entry.stat() if chosen else None
        except OSError:  # a dangling link, for example
            info = None
        if chosen is None:
            kind = "an archive to unpack" if _unpacking(path) else "not a data file"
            listing.ignored.append(Ignored(path, f"{kind} ({_suffix(path) or 'no suffix'})"))
        elif info is not None and not stat.S_ISREG(info.st_mode):
            listing.ignored.append(Ignored(path, "a pipe, socket or device"))
        else:
            yield _file(path, info, chosen, codec)
    for path in listing.missing:
        yield _file(path, None, FORMAT, None)


def _matching(pattern: str, format: str, listing: Listing) -> Iterator[SourceFile]:
    folders: list[str] = []
    parents: set[str] = set()  # folders of matched files
    # A pattern without "", "." and ".." parts matches normalized paths, which need no abspath() each.
    normalized = not {"", ".", ".."}.intersection(pattern.split("/")[1:]) and not pattern.startswith((".", "//"))
    prefix = "" if os.path.isabs(pattern) else os.path.join(os.getcwd(), "")
    for match in glob.iglob(pattern, recursive=True):
        path = prefix + match if normalized else os.path.abspath(match)
        try:
            info = os.stat(path)
        except OSError:
            info = None
        if info is None or not stat.S_ISDIR(info.st_mode):
            parent = os.path.dirname(path)
            while parent not in parents:
                parents.add(parent)
                parent = os.path.dirname(parent)
            yield _described(path, info, format)
        else:
            folders.append(path.rstrip("/"))
    listing.ignored += [Ignored(path, "a folder that a glob matched") for path in folders if path not in parents]
    if not parents:
        raise MissingInputError(f"no file matches {pattern!r} (quote globs, and check the current folder)")


def _behind_url(url: str, format: str, listing: Listing) -> Iterator[SourceFile]:
    """The objects that an URL stands for: one, those below it, or those that match it as a glob."""
    check_url(url)
    pattern = url if is_bucket_url(url) and glob.has_magic(url.partition("://")[2]) else None
    if "*" not in url and not url.endswith("/"):  # an object of this name comes before a glob
        try:
            yield _object(stat_object(url), format, named=True)
            return
        except FileNotFoundError:
            if not is_bucket_url(url):
                raise MissingInputError(f"no such file: {url}") from None
        except PermissionError as error:
            raise UsageError(f"{url}: {error.strerror}") from None
    elif pattern is None and not is_bucket_url(url):
        raise UsageError(f"{url}: a web server does not list its files; give the URL of a file")
    yield from _listed_objects(url, pattern, format, listing)


def _on_hub(item: str, found: HubInput, format: str, listing: Listing) -> Iterator[SourceFile]:
    """The files of a dataset on the Hub, at the commit that its revision stands for now."""
    is_guess = not item.startswith(SCHEME) and found.known is None
    try:
        pinned = pin(found, listing.hub, is_guess=is_guess)
    except (UsageError, UnreachableError) as error:
        if not is_guess:
            raise
        kind = MissingInputError if isinstance(error, UsageError) else UnreachableError
        raise kind(f"{error}. There is no file or folder {item} here either") from None
    listing.hub_inputs.append(found)
    listing.pins.append(pinned)
    count = 0
    data = DataFiles(lambda path: _format_of(path, format, prose=False)[0])
    for file in chosen_files(found, pinned, listing.hub, data):
        count += 1
        path = pinned_path(pinned.dataset, pinned.commit, file.path)
        chosen, codec = _checked_format(path, format, prose=False)
        yield SourceFile(path, file.size, f"{HUB}{file.id}", chosen, codec)
    listing.ignored += [
        Ignored(pinned_path(pinned.dataset, pinned.commit, file.path), reason) for file, reason in data.ignored
    ]
    if not count:
        raise UsageError(
            f"{found.spelling} has no data files at commit {pinned.commit[:7]}; choose files with"
            f" hf://datasets/{pinned.dataset}/PATH and {option_name('format')}"
        )


def _listed_objects(url: str, pattern: str | None, format: str, listing: Listing) -> Iterator[SourceFile]:
    prefix = url if pattern is None else fixed_part(pattern)
    try:
        objects = list(list_objects(prefix))
        stores = _stores_among(objects)
    except FileNotFoundError:
        objects, stores = [], []
    except PermissionError as error:
        raise UsageError(f"{url}: {error.strerror}") from None
    listing.ignored += [Ignored(store, "a token store") for store in stores]
    inside = tuple(f"{store}/" for store in stores)
    if pattern is not None:
        expression = re.compile(glob_expression(pattern))
        objects = [each for each in objects if expression.fullmatch(each.url) or each.url.startswith(inside)]
    if not objects:
        raise MissingInputError(
            f"no object {'matches' if pattern else 'at or below'} {url}; check the name of the bucket and the path"
        )
    for each in objects:
        if each.url.startswith(inside):
            continue
        if pattern is None and any(part.startswith(".") for part in each.url[len(prefix) :].split("/")):
            listing.ignored.append(Ignored(each.url, "hidden"))
        elif each.url.endswith("/") or _format_of(each.url, format, prose=pattern is not None)[0] is None:
            listing.ignored.append(Ignored(each.url, f"not a data file ({_suffix(each.url) or 'no suffix'})"))
        else:
            yield _object(each, format, named=pattern is not None)


def _stores_among(objects: list[Object]) -> list[str]:
    """The URLs of token stores among objects: by what their manifest says, not by the names alone."""
    urls = sorted(each.url for each in objects)
    stores = []
    for manifest in (url for url in urls if url.endswith("/manifest.json")):
        folder = manifest.removesuffix("/manifest.json")
        shards = bisect_left(urls, f"{folder}/shards/")
        has_shards = shards < len(urls) and urls[shards].startswith(f"{folder}/shards/")
        if has_shards and _STORE_MANIFEST.match(read_object(manifest, 0, 200)):
            stores.append(folder)
    return stores


def _object(found: Object, format: str, *, named: bool) -> SourceFile:
    chosen, codec = _checked_format(found.url, format, prose=named)
    return SourceFile(found.url, found.size, found.tag, chosen, codec)


def _in_list(path: str, format: str, listing: Listing, depth: int) -> Iterator[SourceFile]:
    if depth > MOST_NESTED_LISTS:
        raise UsageError(f"the list of files {path} includes itself, or lists are nested too deeply")
    try:
        lines = Path(os.path.expanduser(path)).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        kind = MissingInputError if isinstance(error, FileNotFoundError) else UsageError
        raise kind(f"cannot read the list of files {path}: {error}") from error
    for line in lines:
        if line.strip():
            yield from files_of(line.strip(), format, listing, depth + 1)


def _checked_format(path: str, format: str, *, prose: bool) -> tuple[str, str | None]:
    """The format and codec of a file that must be readable; otherwise UsageError."""
    chosen, codec = _format_of(path, format, prose=prose)
    if chosen is None and (unpack := _unpacking(path)):
        raise UsageError(f"{path} is an archive: unpack it ({unpack}), and pass the folder")
    if chosen is None:
        raise UsageError(
            f"cannot tell the format of {path} from its name; pass {option_name('format')}: {', '.join(FORMATS)}"
        )
    if codec and not REGISTERED[chosen].codecs:
        raise UsageError(f"{path}: {chosen} files compress their content; decompress it with the {codec} tool first")
    return chosen, codec


def _unpacking(path: str) -> str:
    """The command that unpacks an archive; "" for other files."""
    suffix = re.search(r"\.(zip|7z|rar|tar|tgz|tbz2?|txz)(\.\w{2,4})?$", path, re.IGNORECASE)
    commands = {"zip": "unzip", "7z": "7z x", "rar": "unrar x"}
    return f"{commands.get(suffix[1].lower(), 'tar xf')} {shlex.quote(os.path.basename(path))}" if suffix else ""


def _described(path: str, info: os.stat_result | None, format: str) -> SourceFile:
    """A file that was named or matched by a glob."""
    chosen, codec = _checked_format(path, format, prose=True)
    if info is not None and not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a regular file; pipe it in with '-' instead")
    return _file(path, info, chosen, codec)


def _file(path: str, info: os.stat_result | None, format: str, codec: str | None) -> SourceFile:
    """A file that cannot be looked at, such as a dangling link, fails by name when it is read."""
    if info is None:
        return SourceFile(path, 0, "gone", format, codec)
    return SourceFile(path, info.st_size, tag_of(info), format, codec)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _walk(folder: str, listing: Listing) -> Iterator[os.DirEntry[str]]:
    """Every visible file below a folder that may be data, whatever order the file system lists them in.

    Each folder is entered once. Links are followed after everything else, so a folder keeps its own name if it has one here.
    """
    seen: set[tuple[int, int]] = set()
    folders: list[str] = [folder]
    links: list[str] = []
    while folders or links:
        path = folders.pop() if folders else links.pop(0)
        identity, entries = _listed(path)
        if identity in seen:
            listing.ignored.append(Ignored(path, "a link to a folder that is read by another name"))
            continue
        seen.add(identity)
        subfolders = {entry.name: entry for entry in entries if _is_folder(entry)}
        names = {entry.name for entry in entries}
        if _is_store(path, names):
            listing.ignored.append(Ignored(path, "a token store"))
            continue
        dataset = _dataset_folder(path, names, listing)
        for entry in entries:
            if entry.name.startswith("."):
                listing.ignored.append(Ignored(entry.path, "hidden"))
            elif entry.name not in subfolders:
                reason = dataset.reason(entry.name)
                if reason is None:
                    yield entry
                else:
                    listing.ignored.append(Ignored(entry.path, reason))
            elif entry.is_symlink():
                links.append(entry.path)
            else:
                folders.append(entry.path)
        links.sort()


def _dataset_folder(path: str, names: set[str], listing: Listing) -> DatasetFolder:
    """What a folder says about itself. The files it lists are read in the order of the list."""
    dataset = DatasetFolder(path, names)
    listed = dataset.listed or []
    listing.missing += [os.path.join(path, name) for name in dataset.missing]
    for name, place in zip(listed, sorted(listed), strict=True):
        if name != place:
            listing.sorts_as[os.path.join(path, name)] = os.path.join(path, place)
    return dataset


def _listed(folder: str) -> tuple[tuple[int, int], list[os.DirEntry[str]]]:
    """The device and inode of a folder, and its entries by name."""
    try:
        info = os.stat(folder)
        with os.scandir(folder) as entries:
            return (info.st_dev, info.st_ino), sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"cannot list the folder {error.filename}: {error.strerror}") from error


def _is_store(folder: str, names: set[str]) -> bool:
    """Whether a folder is a token store, or the index of one in a cache. These are not sources."""
    if "listing.json" in names and "listing" in (read_cached(Path(folder, "listing.json")) or {}):
        return True
    if not {"manifest.json", "shards"} <= names:
        return False
    try:
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            return _STORE_MANIFEST.match(file.read(200)) is not None
    except OSError:
        return False
