"""Builds the Go programs of this directory once, and says why where it cannot."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

__all__ = [
    "CHECKPOINT",
    "DPM",
    "GENERATIONS",
    "SOURCES",
    "BuildFailed",
    "Recipe",
    "Unavailable",
    "build",
]

SOURCES = Path(__file__).parent / "go"
CACHE = Path(__file__).parents[2] / ".cache" / "interop"


class Unavailable(Exception):
    """This machine cannot build the programs; the text says why, in one line."""


class BuildFailed(Exception):
    """The programs do not compile: a fault of ours."""


@attrs.frozen
class Recipe:
    """One module's build: directory under ``go/``, extra flags, packages."""

    name: str
    directory: str = "."
    flags: tuple[str, ...] = ()
    packages: str = "."


GENERATIONS = {
    "k8s-0.32": Recipe("k8s-0.32", packages="./cmd/..."),
    "k8s-0.37": Recipe(
        "k8s-0.37", flags=("-tags=latest", "-modfile=latest.mod"), packages="./cmd/..."
    ),
}
DPM = Recipe("dpm", "dpmplugin")
CHECKPOINT = Recipe("checkpoint", "checkpointread")

_FETCHING = (
    "dial tcp",
    "no such host",
    "i/o timeout",
    "connection refused",
    "TLS handshake",
    "403 Forbidden",
    "404 Not Found",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "module lookup disabled",
    "unrecognized import path",
    "cannot find module providing package",
    "(running go ",
    "unknown directive",
    "toolchain not available",
)
"""What go says when modules cannot be had, or when it is older than a module asks for."""


def build(recipe: Recipe) -> Path:
    """The directory with the recipe's programs, built if its sources changed.

    Safe to call from several processes at once: they take turns, and a build appears
    whole or not at all. Raises ``Unavailable`` or ``BuildFailed``.
    """
    target = CACHE / f"{recipe.name}-{_digest(recipe)}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with _turn(CACHE / "lock"):
        if not target.is_dir():
            _forget_older(recipe)
            _build_into(recipe, target)
    return target


def _digest(recipe: Recipe) -> str:
    digest = hashlib.sha256(repr(recipe).encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_older(recipe: Recipe) -> None:
    for old in CACHE.glob(f"{recipe.name}-*"):
        shutil.rmtree(old)


def _build_into(recipe: Recipe, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is not installed")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="building-") as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        command = [go, "build", "-buildvcs=false", "-ldflags=-s -w", *recipe.flags]
        done = subprocess.run(
            [*command, "-o", f"{out}/", recipe.packages],
            cwd=SOURCES / recipe.directory,
            # A module that asks for a newer Go is skipped, not a reason to download one.
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise explain(done.stderr)
        out.rename(target)


def explain(stderr: str) -> Unavailable | BuildFailed:
    """Whether the machine or the sources are to blame for what go wrote."""
    for line in stderr.splitlines():
        if any(sign in line for sign in _FETCHING):
            return Unavailable(line.strip())
    return BuildFailed(stderr)
