"""Build the Rust plugin of this directory, or report why that is not possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.interop import builds
from tests.interop.builds import BuildFailed, Unavailable, build_error, build_once, digest
from tests.paths import ROOT

__all__ = ["SOURCES", "build", "explain"]

SOURCES = Path(__file__).parent / "rust" / "tonicplugin"
DESCRIPTOR = ROOT / "protos" / "deviceplugin_v1beta1.binpb"

_UNAVAILABLE = (
    "spurious network error",
    "Could not resolve host",
    "could not resolve host",
    "failed to download",
    "download of ",
    "unable to get packages from source",
    "attempting to make an HTTP request",
    "failed to query replaced source",
    "failed to get `",
    "no matching package",
    "is not supported by the following packages",
    "requires rustc",
    "edition2024` is required",
    "rustup could not choose",
    "linker `cc` not found",
)
"""Parts of the output of cargo if crates or a linker are missing, or if Rust is too old."""


def build() -> Path:
    """Return the directory with ``tonicplugin``; build it if the sources changed.

    Raises ``Unavailable`` or ``BuildFailed``.
    """
    sources = [path for path in SOURCES.rglob("*") if path.suffix in {".rs", ".toml"}]
    version = digest(SOURCES, sources, DESCRIPTOR.read_bytes().hex())
    return build_once("rust", version, _build_into)


def _build_into(out: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Unavailable("cargo is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        # Build a copy, because cargo writes its lock file beside the sources.
        copy = Path(scratch) / SOURCES.name
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        # Keep the compiled crates: after a change, only the program is compiled.
        target = builds.CACHE / "cargo"
        done = subprocess.run(
            [cargo, "build", "--quiet"],
            cwd=copy,
            env={**os.environ, "CARGO_TARGET_DIR": str(target), "PROTOS": str(DESCRIPTOR.parent)},
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise explain(done.stderr)
    shutil.copy(target / "debug" / "tonicplugin", out)


def explain(stderr: str) -> Unavailable | BuildFailed:
    """Return the cause of a failed build, from the output of cargo."""
    return build_error(stderr, _UNAVAILABLE)
