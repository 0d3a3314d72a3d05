"""Builds the source archive and the wheel, and installs them as users do. `make dist` runs this.

python scripts/check_dist.py                        # every Python 3.11, 3.12 and 3.13 that is found; minutes for each
python scripts/check_dist.py --python 3.12          # one of them

Each way of installing gets a new environment: the wheel, the source archive and the folder itself with pip, the wheel and the
folder with uv. A small store is built, checked and loaded in each. The archives stay in dist/. The exit code is 1 if any
way fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
LARGEST = 2_000_000  # bytes of an archive; what is larger has data in it that does not belong there
EXPECTED = {
    ".ci",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "docs",
    "examples",
    "pyproject.toml",
}
EXPECTED |= {"ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks", "scripts", "src", "tests", "zensical.toml"}
ADDED = {"PKG-INFO", ".gitignore"}  # what building adds
CHECK = """
import tokenmill as tm

assert "site-packages" in tm.__file__, tm.__file__
store = tm.build(["one text", "another text"], "demo", "store", progress="quiet")
assert [store.text(0), store.text(1)] == ["one text", "another text"] and store.verify() == []
assert next(iter(tm.load(store, 1, seq_len=4)))["input_ids"].shape == (1, 4)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="*", default=VERSIONS, metavar="VERSION", help="(3.11 3.12 3.13)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the archives go (dist)")
    options = parser.parse_args()
    found = {version: python for version in options.python if (python := find_python(version))}
    for version in options.python:
        print(f"Python {version}: {found.get(version, 'not found')}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tokenmill-dist-") as folder:
        work = Path(folder)
        tools = new_environment(Path(sys.executable), work / "tools")
        run(tools, "-m", "pip", "install", "--quiet", "build")
        archive, wheel = build(tools, options.out)
        has_uv = succeeds(tools, "-m", "pip", "install", "--quiet", "uv")
        ways = {"pip, wheel": wheel, "pip, source archive": archive, "pip, folder": ROOT}
        ways |= {"uv, wheel": wheel, "uv, folder": ROOT} if has_uv else {}
        print("" if has_uv else "uv cannot be installed here: left out")
        failed = [
            f"Python {version}, {way}"
            for version, python in found.items()
            for way, what in ways.items()
            if not installs(python, way, what, work, tools)
        ]
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed or not found else 0


def find_python(version: str) -> Path | None:
    """A Python of this version: the running one, one on the PATH, or one of pyenv."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [sys.executable, shutil.which(f"python{version}")]
    candidates += sorted(map(str, home.glob(f"versions/{version}.*/bin/python")), reverse=True)
    for path in filter(None, candidates):
        asked = [path, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return Path(path)
    return None


def build(python: Path, out: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from that archive."""
    shutil.rmtree(out, ignore_errors=True)
    run(python, "-m", "build", "--outdir", str(out), str(ROOT))
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    with tarfile.open(archive) as opened:
        names = [name.partition("/")[2] for name in opened.getnames()]
    problems = wrong_content(names)
    for path in (archive, wheel):
        print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)
        if path.stat().st_size > LARGEST:
            problems.append(f"{path.name} is larger than {LARGEST:,} bytes")
    if problems:
        raise SystemExit("\n".join(problems))
    return archive, wheel


def wrong_content(names: list[str]) -> list[str]:
    """What a source archive with these files lacks, and what does not belong in it."""
    tops = {name.partition("/")[0] for name in names if name}
    lacking = [f"the source archive lacks {name}" for name in sorted(EXPECTED - tops)]
    return lacking + [f"the source archive has {name}" for name in sorted(tops - EXPECTED - ADDED)]


def installs(python: Path, way: str, what: Path, work: Path, tools: Path) -> bool:
    """Install in a new environment, and use what was installed from another folder."""
    began = time.perf_counter()
    folder = work / "installed"
    own = new_environment(python, folder / "venv")
    if way.startswith("uv"):
        ok = succeeds(tools, "-m", "uv", "pip", "install", "--quiet", "--python", str(own), str(what))
    else:
        ok = succeeds(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(what))
    ok = (
        ok
        and succeeds(own, "-c", CHECK, folder=folder)
        and succeeds(own, "-m", "tokenmill", "info", "store", folder=folder)
    )
    ok = ok and succeeds(own.parent / "tokenmill", "--version", folder=folder)
    shutil.rmtree(folder)
    print(f"{python}, {way}: {'ok' if ok else 'FAILED'} ({time.perf_counter() - began:.0f} s)", flush=True)
    return ok


def new_environment(python: Path, folder: Path) -> Path:
    """The Python of a new virtual environment."""
    run(python, "-m", "venv", str(folder))
    return folder / "bin" / "python"


def run(program: Path, *arguments: str) -> None:
    if not succeeds(program, *arguments):
        raise SystemExit(f"{program.name} {' '.join(arguments)} failed")


def succeeds(program: Path, *arguments: str, folder: Path = ROOT) -> bool:
    """Run a program without the paths and the cache of the user; what it printed is shown if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["TOKENMILL_CACHE"] = str(folder / "cache")
    command = [str(program), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(command)[:200]}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
