"""Cache the programs of the peers: each is built once, and again when its sources change."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.paths import ROOT

__all__ = ["CACHE", "BuildFailed", "Unavailable", "built", "digest", "judge"]

CACHE = ROOT / ".cache" / "interop"


class Unavailable(Exception):
    """This machine cannot build the programs; one line with the reason."""


class BuildFailed(Exception):
    """The programs do not compile: a bug of this project."""


def built(name: str, version: str, build: Callable[[Path], None]) -> Path:
    """Return the directory with the programs of a version; ``build`` fills an empty one.

    Safe for concurrent use by several processes: they take turns, and a build appears atomically.
    Programs of the same name and another version are removed.
    """
    target = CACHE / f"{name}-{version}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with _turn(CACHE / "lock"):
        if not target.is_dir():
            for old in CACHE.glob(f"{name}-*"):
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as scratch:
                out = Path(scratch) / "out"
                out.mkdir()
                build(out)
                out.rename(target)
    return target


def digest(root: Path, paths: Iterable[Path], *others: str) -> str:
    """Return a short digest of files, their paths below ``root``, and other texts."""
    whole = hashlib.sha256("\0".join(others).encode())
    for path in sorted(paths):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0")
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def judge(stderr: str, signs: Iterable[str]) -> Unavailable | BuildFailed:
    """Return Unavailable if a build tool's output has one of ``signs``, else BuildFailed."""
    signs = tuple(signs)
    for line in stderr.splitlines():
        if any(sign in line for sign in signs):
            return Unavailable(line.strip())
    return BuildFailed(stderr)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
