"""Cache the programs of other implementations; rebuild them when their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.paths import ROOT

__all__ = ["CACHE", "BuildFailed", "Unavailable", "build_error", "build_once", "digest"]

CACHE = ROOT / ".cache" / "interop"


class Unavailable(Exception):
    """This machine cannot build the programs. The message is one line with the reason."""


class BuildFailed(Exception):
    """The programs do not compile: a bug in this project."""


def build_once(name: str, version: str, build: Callable[[Path], None]) -> Path:
    """Return the directory with the programs of a version; ``build`` fills a new one.

    Safe for concurrent use by several processes: a lock serializes builds, and a finished build
    appears atomically. Other versions of the same name are removed.
    """
    target = CACHE / f"{name}-{version}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
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
    """Return a short digest of files, of their paths below ``root``, and of other texts."""
    sha = hashlib.sha256("\0".join(others).encode())
    for path in sorted(paths):
        sha.update(path.relative_to(root).as_posix().encode() + b"\0")
        sha.update(path.read_bytes())
    return sha.hexdigest()[:12]


def build_error(stderr: str, unavailable: Iterable[str]) -> Unavailable | BuildFailed:
    """Return Unavailable if a build tool's output has one of these texts, else BuildFailed."""
    texts = tuple(unavailable)
    for line in stderr.splitlines():
        if any(text in line for text in texts):
            return Unavailable(line.strip())
    return BuildFailed(stderr)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
