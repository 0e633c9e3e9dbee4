"""``python -m tools.fuzz``: fuzz each target for some time, and print the findings."""

from __future__ import annotations

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
from tools.fuzz.worker import targets
from tools.harness.command import USAGE, Run, add_choice, choose, parser

_OUTPUT: Final = Path(".cache/fuzz")
_HANG: Final = 30
_MEMORY_MB: Final = 2048
_MAX_INPUT: Final = 16_384
_WORKER: Final = [sys.executable, "-m", "tools.fuzz.worker"]


@attrs.define
class Result:
    """Result of fuzzing one target."""

    runs: int = 0
    """Number of inputs that were tried."""
    inputs: int = 0
    """Number of inputs in the corpus after fuzzing."""
    memory: int = 0
    """Peak memory of the process in MB."""
    finding: str = ""
    """Last line of the error, and the path of the input; empty if nothing was found."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz the selected targets. Return 0 if nothing was found, 1 for a finding, or 2 for wrong
    usage."""
    options = parser(
        "fuzz",
        "Fuzz everything that parses input from others.",
        seconds=(60, "seconds for each target"),
    )
    add_choice(options)
    selected = options.parse_args(arguments)
    chosen, status = choose("fuzz", targets(), selected)
    if status is not None:
        return status
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed: use `make fuzz`", file=sys.stderr)
        return USAGE
    run = Run("fuzz")
    for target in chosen:
        result = fuzz(target, selected.seconds)
        run.say(
            f"fuzz: {target.name}: {selected.seconds} s, {result.runs} runs, {result.inputs} "
            f"inputs, peak {result.memory} MB: {result.finding or 'nothing found'}"
        )
        run.problems += [target.name] if result.finding else []
    return run.finish(f"{len(chosen)} targets", "nothing found")


def fuzz(target: Target, seconds: int) -> Result:
    """Fuzz one target until there is a finding or the time is over."""
    directory = _OUTPUT / target.name
    inputs = directory / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    words = directory / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    end, result = time.monotonic() + seconds, Result()
    # libFuzzer stops at its first finding. If the finding is not confirmed, start libFuzzer again.
    while not result.finding and (rest := int(end - time.monotonic())) > 0:
        output, code = _once(target, directory, inputs, words, rest)
        result.runs += _number(output, "number_of_executed_units")
        result.memory = max(result.memory, _number(output, "peak_rss_mb"))
        if code:
            result.finding = _confirmed(target, output)
    result.inputs = sum(1 for _ in inputs.iterdir())
    return result


def _once(
    target: Target, directory: Path, inputs: Path, words: Path, seconds: int
) -> tuple[str, int]:
    """Run libFuzzer once. Return its output and exit status."""
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={_HANG}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-max_len={_MAX_INPUT}",
        *([f"-dict={words}"] if target.words else []),
        f"-artifact_prefix={directory}/",
        "-print_final_stats=1",
    ]
    done = subprocess.run(
        [*_WORKER, "fuzz", target.name, *options, str(inputs), str(target.corpus)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = done.stdout.decode(errors="replace")
    (directory / "log").write_text(output)
    return output, done.returncode


def _confirmed(target: Target, output: str) -> str:
    """Return the finding in libFuzzer's output if it also occurs without instrumentation; otherwise
    an empty text."""
    written = re.search(r"Test unit written to (\S+)", output)
    if written is None:
        return (output.strip().splitlines() or ["the fuzzer exited without output"])[-1]
    path = written.group(1)
    command = [*_WORKER, "replay", target.name, path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_HANG, check=False)
    except subprocess.TimeoutExpired:
        return f"hangs: {path}"
    if not done.returncode:
        # The input is slow only with instrumentation.
        Path(path).unlink()
        return ""
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it was killed"])[-1]
    return f"{last[:300]}: {path}"


def _number(output: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+([0-9]+)", output)
    return int(found.group(1)) if found else 0


def _escaped(word: str) -> str:
    return "".join(
        char if char.isalnum() else "".join(f"\\x{byte:02x}" for byte in char.encode())
        for char in word
    )


if __name__ == "__main__":
    sys.exit(main())
