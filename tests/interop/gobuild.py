"""Builds the Go programs of this directory once, and says why where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import attrs

from tests.interop.builds import BuildFailed, Unavailable, built, digest, judge

__all__ = ["CHECKPOINT", "DPM", "GENERATIONS", "SOURCES", "Recipe", "build", "explain"]

SOURCES = Path(__file__).parent / "go"


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
    Raises ``Unavailable`` or ``BuildFailed``."""
    sources = [path for path in SOURCES.rglob("*") if path.suffix in {".go", ".mod", ".sum"}]
    version = digest(SOURCES, sources, repr(recipe))
    return built(recipe.name, version, lambda out: _build_into(recipe, out))


def _build_into(recipe: Recipe, out: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is not installed")
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


def explain(stderr: str) -> Unavailable | BuildFailed:
    """Whether the machine or the sources are to blame for what go wrote."""
    return judge(stderr, _FETCHING)
