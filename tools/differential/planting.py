"""Plant wrong behaviours in the mock, one by one, and count how many are noticed.

A plant replaces text of a module's source before Python compiles it (``planted``). Each runs in a
process of its own, which plays scenarios with known results of the reference until one differs.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.tools.plants import Plant

_ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = _ROOT / "tests" / "tools" / "data" / "differential.jsonl"
NOTICED: Final = _ROOT / "tests" / "tools" / "data" / "plants.json"
"""By plant the recorded scenario that notices it."""
_LEAST: Final = 32


class PlantError(Exception):
    """The text that a plant replaces is not there exactly once."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loader of a module with other source."""

    source = ""

    def get_data(self, path: str) -> bytes:
        return self.source.encode()

    def path_stats(self, path: str) -> Any:
        # Not cached, neither the right nor the wrong module.
        raise OSError("a planted module")


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of one module, with other source."""

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
    """Plant a wrong behaviour, if its module has not been imported. Raises PlantError."""
    if plant.module in sys.modules:
        raise PlantError(f"{plant.name}: {plant.module} is already imported")
    finder = _Finder(plant)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def notice_all(version: str, program: Path, options: argparse.Namespace) -> bool:
    """Print which plants the recorded scenarios or the generator notice; True if enough are."""
    from devicemanager.observe.terminal.progress import Work
    from tests.tools.plants import PLANTS

    with tempfile.TemporaryDirectory(prefix="dm-") as directory:
        file = Path(directory, "results.jsonl")
        made = 0
        noticed = 0
        rows = []
        with Work("planted errors", len(PLANTS)) as work:
            for number, plant in enumerate(work.tracked(PLANTS)):
                by = notices(number, RECORDED)
                if not by:
                    if not made:
                        made = _results(version, program, options, file)
                    by = notices(number, file)
                    _record(file, by)
                noticed += bool(by)
                rows.append((plant.name, by))
    for name, by in rows:
        print(f"  {by or 'NOT NOTICED':24} {name}")
    print(
        f"{version}: {noticed} of {len(PLANTS)} planted errors are noticed, {_LEAST} are required"
    )
    NOTICED.write_text(json.dumps({name: by for name, by in rows if by}, indent=1) + "\n")
    return noticed >= _LEAST


def _record(file: Path, scenario: str) -> None:
    """Record a scenario, because it notices what the recorded ones do not."""
    lines = [line for line in file.read_text().splitlines() if f'"id":"{scenario}"' in line]
    if scenario and lines:
        with RECORDED.open("a") as recorded:
            recorded.write(f"{lines[0]}\n")


def _results(version: str, program: Path, options: argparse.Namespace, file: Path) -> int:
    """Write scenarios with the reference's results, and return how many agree."""
    from tools.differential.generating import scenarios
    from tools.differential.recording import line
    from tools.differential.reference import Reference
    from tools.differential.running import Comparison
    from tools.differential.versions import minor

    with Reference(program) as reference:
        made = scenarios(options.seed, options.scenarios, minor(version))
        tally = Comparison(reference, version).run(made, options.scenarios, keep=True)
    file.write_text("".join(f"{line(version, *each[:2])}\n" for each in tally.agreeing))
    return len(tally.agreeing)


def notices(plant: int, file: Path, scenario: str = "") -> str:
    """Return the first scenario of a file in which a plant is noticed, or an empty text."""
    arguments = [sys.executable, "-m", "tools.differential.planting", str(plant), str(file)]
    done = subprocess.run(
        [*arguments, scenario], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PlantError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> None:
    """Play the scenarios of a file with a plant; print the ID of the first that differs."""
    from tests.tools.plants import PLANTS

    number, file, wanted = arguments
    with planted(PLANTS[int(number)]):
        from tools.differential import recording

        for each in recording.read(Path(file)):
            if wanted and each.scenario["id"] != wanted:
                continue
            try:
                is_noticed = bool(recording.differences(each))
            except Exception:  # a planted error can also break the mock
                is_noticed = True
            if is_noticed:
                print(each.scenario["id"])
                return


if __name__ == "__main__":
    main(sys.argv[1:])
