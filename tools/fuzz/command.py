"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from tools.fuzz.model import Target
from tools.fuzz.registry import targets

_FOUND: Final = Path(".cache/fuzz")
_HANG: Final = 30
_MEMORY_MB: Final = 2048
_LONGEST_INPUT: Final = 16_384


@attrs.frozen
class Result:
    """What came of fuzzing one target."""

    runs: int
    inputs: int
    """How many the corpus has now."""
    memory: int
    """The most that the process had, in MB."""
    finding: str = ""
    """The last line of what went wrong, and the file with the input; empty if nothing did."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and print. 0: nothing was found; 1: something was; 2: wrong usage."""
    options = _parser().parse_args(arguments)
    chosen = [each for each in targets() if not options.only or each.name in options.only]
    if options.list:
        print(*(f"{target.name:18} {target.about}" for target in chosen), sep="\n")
        return 0
    if not chosen:
        print("fuzz: no target has such a name: see --list", file=sys.stderr)
        return 2
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed: use `make fuzz`", file=sys.stderr)
        return 2
    found = 0
    for target in chosen:
        result = fuzz(target, options.seconds)
        print(
            f"fuzz: {target.name}: {options.seconds} s, {result.runs} runs, {result.inputs} "
            f"inputs, peak {result.memory} MB: {result.finding or 'nothing found'}",
            flush=True,
        )
        found += bool(result.finding)
    return 1 if found else 0


def fuzz(target: Target, seconds: int) -> Result:
    """Fuzz one target; an input that was only slow to watch does not end it."""
    directory = _FOUND / target.name
    inputs = directory / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    words = directory / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    end, runs, memory = time.monotonic() + seconds, 0, 0
    while (rest := int(end - time.monotonic())) > 0:
        said, code = _once(target, directory, inputs, words, rest)
        runs += _number(said, "number_of_executed_units")
        memory = max(memory, _number(said, "peak_rss_mb"))
        if code and (finding := _confirmed(target, said)):
            return Result(runs, _count(inputs), memory, finding)
    return Result(runs, _count(inputs), memory)


def _once(
    target: Target, directory: Path, inputs: Path, words: Path, seconds: int
) -> tuple[str, int]:
    """What libFuzzer said, and its exit status."""
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={_HANG}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-max_len={_LONGEST_INPUT}",
        *([f"-dict={words}"] if target.words else []),
        f"-artifact_prefix={directory}/",
        "-print_final_stats=1",
    ]
    command = [sys.executable, "-m", "tools.fuzz.worker", target.name, *options]
    done = subprocess.run(
        [*command, str(inputs), str(target.corpus)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode(errors="replace")
    (directory / "log").write_text(said)
    return said, done.returncode


def _confirmed(target: Target, said: str) -> str:
    """The finding, if the input does the same without being watched; else nothing."""
    written = re.search(r"Test unit written to (\S+)", said)
    if written is None:
        return (said.strip().splitlines() or ["the fuzzer ended without a word"])[-1]
    path = written.group(1)
    command = [sys.executable, "-m", "tools.fuzz.registry", target.name, path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_HANG, check=False)
    except subprocess.TimeoutExpired:
        return f"hangs: {path}"
    if not done.returncode:
        Path(path).unlink()
        return ""
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it was killed"])[-1]
    return f"{last[:300]}: {path}"


def _number(said: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+([0-9]+)", said)
    return int(found.group(1)) if found else 0


def _count(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir())


def _escaped(word: str) -> str:
    return "".join(
        char if char.isalnum() else "".join(f"\\x{byte:02x}" for byte in char.encode())
        for char in word
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz",
        description="Fuzz everything that reads what others wrote.",
    )
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="for each target")
    return parser
