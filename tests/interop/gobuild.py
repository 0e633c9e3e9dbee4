"""Build the Go programs of this directory, or report why that is not possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.interop.builds import BuildFailed, Unavailable, build_error, build_once, digest

__all__ = [
    "CHECKPOINT",
    "DPM",
    "DRA_DRIVER",
    "GENERATIONS",
    "PODS_API",
    "SOURCES",
    "Recipe",
    "build",
    "explain",
    "go_test",
]

SOURCES = Path(__file__).parent / "go"


@attrs.frozen
class Recipe:
    """The build of one module: directory in ``go/``, flags of ``go build``, and packages."""

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
PODS_API = Recipe("podsapi", "podsapi")
DRA_DRIVER = Recipe("dradriver", "dradriver")

_UNAVAILABLE = (
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
"""Parts of the output of go if modules are not available, or if go is too old for a module."""


def build(recipe: Recipe) -> Path:
    """Return the directory with the recipe's programs; build them if the sources changed.

    Raises ``Unavailable`` or ``BuildFailed``.
    """
    sources = [path for path in SOURCES.rglob("*") if path.suffix in {".go", ".mod", ".sum"}]
    version = digest(SOURCES, sources, repr(recipe))
    return build_once(recipe.name, version, lambda out: _build_into(recipe, out))


def _build_into(recipe: Recipe, out: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is not installed")
    command = [go, "build", "-buildvcs=false", "-ldflags=-s -w", *recipe.flags]
    done = subprocess.run(
        [*command, "-o", f"{out}/", recipe.packages],
        cwd=SOURCES / recipe.directory,
        # Fail if a module needs a newer Go, instead of downloading one.
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise explain(done.stderr)


def explain(stderr: str) -> Unavailable | BuildFailed:
    """Return the cause of a failed build, from the output of go."""
    return build_error(stderr, _UNAVAILABLE)


def go_test(directory: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``go test`` in a module; skip the test if Go or its modules are not available."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    command = Path(sys.executable).with_name("devicemanager")
    done = subprocess.run(
        ["go", "test", "-count=1", *options, "./..."],
        cwd=directory,
        env={**os.environ, "GOTOOLCHAIN": "local", "DEVICEMANAGER": str(command), **env},
        capture_output=True,
        text=True,
    )
    if done.returncode and "FAIL" not in done.stdout:
        reason = explain(done.stderr)
        if isinstance(reason, Unavailable):
            pytest.skip(f"no Go modules: {reason}")
    return done
