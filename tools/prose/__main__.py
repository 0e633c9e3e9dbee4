"""Check the English of the repository: `python -m tools.prose`.

Prints a line for each marker word. Exits with status 1 if `tools/prose/accepted.txt` does not list
one of them. A listed word that does not occur any more is an error, too, so the list can only
shrink. `--counts` prints the number of occurrences of each marker word.
"""

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from tools.prose.markers import MARKERS
from tools.prose.texts import texts

_ROOT = Path(__file__).resolve().parents[2]
_ACCEPTED = Path(__file__).with_name("accepted.txt")
_LEFT_OUT = ("tools/prose/", "tests/tools/test_prose.py", "LICENSE")


@attrs.frozen
class Hit:
    """Occurrence of a marker word in a file."""

    path: str
    line: int
    marker: str
    text: str

    def __str__(self) -> str:
        instead = MARKERS[self.marker][1]
        return f"{self.path}:{self.line}: {self.marker}: {self.text} (write: {instead})"


def hits(paths: Iterable[Path], root: Path = _ROOT) -> list[Hit]:
    """Return all marker words in these files, in order."""
    return [
        Hit(str(path.relative_to(root)), number, name, _excerpt(text, found.span()))
        for path in paths
        for number, text in texts(path)
        for name, (pattern, _) in MARKERS.items()
        for found in pattern.finditer(text)
    ]


def _excerpt(text: str, span: tuple[int, int]) -> str:
    return " ".join(text[max(0, span[0] - 30) : span[1] + 30].split())


def accepted(text: str) -> Counter[tuple[str, str]]:
    """Return the accepted number of hits by file and marker. Each line of ``text`` is PATH MARKER
    COUNT."""
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return Counter({(path, marker): int(count) for path, marker, count in rows})


def problems(found: Sequence[Hit], allowed: Counter[tuple[str, str]]) -> list[str]:
    """Return a line for each hit that is not accepted, and for each accepted hit that is gone."""
    by_place = defaultdict(list)
    for hit in found:
        by_place[hit.path, hit.marker].append(hit)
    lines = [
        str(hit)
        for place, found_there in by_place.items()
        if len(found_there) > allowed[place]
        for hit in found_there
    ]
    for (path, marker), count in allowed.items():
        left = len(by_place[path, marker])
        if left < count:
            lines.append(f"{_ACCEPTED.name}: {path} {marker} {count}: only {left} left, lower it")
    return lines


def _tracked() -> list[Path]:
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.py",
            "*.md",
            "*.js",
            "*.html",
            "*.go",
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = sorted(filter(None, listed.stdout.split("\0")))
    return [_ROOT / path for path in paths if not path.startswith(_LEFT_OUT)]


def main() -> int:
    """Check the files named in the arguments, or all pages and modules. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.prose", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files (default: all)")
    parser.add_argument("--counts", action="store_true", help="print a count for each marker")
    args = parser.parse_args()
    found = hits([path.resolve() for path in args.paths] or [p for p in _tracked() if p.exists()])
    if args.counts:
        for name, count in Counter(hit.marker for hit in found).most_common():
            print(f"{count:5} {name}")
        return 0
    allowed = Counter() if args.paths else accepted(_ACCEPTED.read_text())
    lines = problems(found, allowed)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
