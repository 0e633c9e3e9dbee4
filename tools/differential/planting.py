"""Plant wrong behaviours in the mock, one at a time, and count those that the comparison notices.

A plant replaces text in a module's source before Python compiles it (``planted``). For each plant,
a separate process plays scenarios with known reference results until one differs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from tests.tools.plants import Plant
    from tools.differential.comparing import Disagreement
    from tools.differential.recording import Recorded
    from tools.differential.subject import Subject

_ROOT: Final = Path(__file__).parents[2]
_DATA: Final = _ROOT / "tests" / "tools" / "data"


@attrs.frozen
class Suite:
    """Plants in one manager."""

    name: str
    recorded: Path
    """Scenarios with reference results."""
    noticed: Path
    """For each plant, the recorded scenario that notices it."""
    least: int
    """Minimum number of plants that must be noticed."""

    @property
    def plants(self) -> Sequence[Plant]:
        """All plants. They are listed in the tests."""
        name = "dra_plants" if self is DRA else "plants"
        plants: Sequence[Plant] = importlib.import_module(f"tests.tools.{name}").PLANTS
        return plants

    def differences(self, recorded: Recorded) -> list[Disagreement]:
        """Run a recorded scenario in the mock. Return unexplained disagreements."""
        if self is DRA:
            from tools.differential.dra.running import differences_of

            return differences_of(recorded)
        from tools.differential.recording import differences

        return differences(recorded)


DEVICES: Final = Suite("devices", _DATA / "differential.jsonl", _DATA / "plants.json", 32)
DRA: Final = Suite("dra", _DATA / "differential-dra.jsonl", _DATA / "plants-dra.json", 20)
_SHARED: Final = (
    "asyncio",
    "attrs",
    "fnv_hash_fast",
    "google.protobuf.json_format",
    "grpc",
    "podresources.sockets",
    "protos.deviceplugin_v1beta1_grpc",
    "protos.podresources_v1_grpc",
)
_SUITES: Final = {suite.name: suite for suite in (DEVICES, DRA)}


class PlantError(Exception):
    """The text that a plant replaces does not occur exactly once."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from changed source."""

    source = ""

    def get_data(self, path: str) -> bytes:
        return self.source.encode()

    def path_stats(self, path: str) -> Any:
        # Do not cache bytecode, neither of the original nor of the changed module.
        raise OSError("a planted module")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module and loads it from changed source."""

    def __init__(self, plant: Plant) -> None:
        path = _ROOT / f"{plant.module.replace('.', '/')}.py"
        source = path.read_text()
        if (count := source.count(plant.old)) != 1:
            raise PlantError(f"{plant.name}: {plant.module} has {count} times {plant.old!r}")
        self._module, self._path = plant.module, str(path)
        self._source = source.replace(plant.old, plant.new)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _Loader(fullname, self._path)
        loader.source = self._source
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Plant a wrong behaviour in a module that is not imported yet. Raises PlantError."""
    if plant.module in sys.modules:
        raise PlantError(f"{plant.name}: {plant.module} is already imported")
    finder = _Finder(plant)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def notice_all(subject: Subject, version: str, program: Path, options: argparse.Namespace) -> bool:
    """Print the plants that recorded or generated scenarios notice. Return True if they are
    enough."""
    from devicemanager.observe.terminal.progress import Work

    suite = DRA if options.dra else DEVICES
    with tempfile.TemporaryDirectory(prefix="dm-") as directory:
        file = Path(directory, "results.jsonl")
        made = 0
        noticed = 0
        rows = []
        with Work("planted errors", len(suite.plants)) as work:
            for number, plant in enumerate(work.tracked(suite.plants)):
                by = notices(number, suite.recorded, suite=suite)
                if not by:
                    if not made:
                        made = _results(subject, version, program, options, file)
                    by = notices(number, file, suite=suite)
                    _record(file, by, suite)
                noticed += bool(by)
                rows.append((plant.name, by))
    for name, by in rows:
        print(f"  {by or 'NOT NOTICED':24} {name}")
    print(
        f"{version}: {noticed} of {len(suite.plants)} planted errors are noticed, "
        f"{suite.least} are required"
    )
    suite.noticed.write_text(json.dumps({name: by for name, by in rows if by}, indent=1) + "\n")
    return noticed >= suite.least


def _record(file: Path, scenario: str, suite: Suite) -> None:
    """Record a scenario that notices a plant which no recorded scenario notices."""
    lines = [line for line in file.read_text().splitlines() if f'"id":"{scenario}"' in line]
    if scenario and lines:
        with suite.recorded.open("a") as recorded:
            recorded.write(f"{lines[0]}\n")


def _results(
    subject: Subject, version: str, program: Path, options: argparse.Namespace, file: Path
) -> int:
    """Write scenarios with reference results to ``file``. Return the number that agree."""
    from tools.differential.ours import Mode
    from tools.differential.recording import line
    from tools.differential.versions import minor

    with subject.reference(program) as reference:
        made = subject.scenarios(options.seed, options.scenarios, minor(version))
        comparison = subject.comparison(reference, version, Mode())
        tally = comparison.run(made, options.scenarios, keep=True)
    lines = [f"{line(version, *each[:2])}\n" for each in tally.agreeing]
    # Record the shortest scenario that notices a plant.
    file.write_text("".join(sorted(lines, key=len)))
    return len(lines)


def notices(plant: int, file: Path, scenario: str = "", suite: Suite = DEVICES) -> str:
    """Return the first scenario of a file that notices a plant; empty if none does."""
    if not file.exists():
        return ""
    arguments = [sys.executable, "-m", "tools.differential.planting", suite.name]
    done = subprocess.run(
        [*arguments, str(plant), str(file), scenario],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PlantError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()


def notices_all(suite: Suite, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the plants that recorded scenarios notice, by name.

    ``wanted``: a scenario for each plant to try. This is faster than calling ``notices`` for
    each.
    """
    arguments = [sys.executable, "-m", "tools.differential.planting", suite.name]
    done = subprocess.run(
        [*arguments, json.dumps(dict(wanted))],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def _in_children(suite: Suite, wanted: Mapping[str, str]) -> None:
    """Print the name and scenario of each plant that its scenario notices.

    Each plant is tried in a child process that has not yet imported the module to change. All
    children share what is imported before them: libraries, and packages without plants.
    """
    for name in _SHARED:
        importlib.import_module(name)
    for plant in suite.plants:
        if plant.name in wanted and (child := os.fork()) == 0:
            if found := _first_noticed(suite, plant, suite.recorded, wanted[plant.name]):
                print(json.dumps([plant.name, found]), flush=True)
            os._exit(0)
        elif plant.name in wanted:
            os.waitpid(child, 0)


def main(arguments: Sequence[str]) -> None:
    """Play the scenarios of a file with a plant. Print the ID of the first that differs."""
    suite = _SUITES[arguments[0]]
    if len(arguments) == 2:
        _in_children(suite, json.loads(arguments[1]))
        return
    number, file, wanted = arguments[1:]
    if found := _first_noticed(suite, suite.plants[int(number)], Path(file), wanted):
        print(found)


def _first_noticed(suite: Suite, plant: Plant, file: Path, wanted: str) -> str:
    with planted(plant):
        from tools.differential import recording

        for each in recording.read(file):
            if wanted and each.scenario["id"] != wanted:
                continue
            try:
                is_noticed = bool(suite.differences(each))
            except Exception:  # a planted error can also break the mock
                is_noticed = True
            if is_noticed:
                return str(each.scenario["id"])
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
