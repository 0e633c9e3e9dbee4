"""Build the Go program with one release's device manager."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from devicemanager.core.versions.version import OLDEST
from tools.differential.versions import PINNED, minor, staging_version

SOURCES: Final = Path(__file__).parent / "go"
_SUMS: Final = Path(__file__).parent / "sums"
"""Lines for go.sum, from Go's module proxy, for modules that Go's checksum database lacks."""
CACHE: Final = Path(__file__).parents[2] / ".cache" / "differential"
_MODULE: Final = "k8s.io/kubernetes"
_STAGING: Final = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/", re.MULTILINE)
_GO: Final = re.compile(r"^go 1\.(\d+)(\.\d+)?$", re.MULTILINE)
_OWN_GO: Final = 21
"""Go version that the program itself needs. Kubernetes releases until 1.28 name an older one."""


class BuildError(Exception):
    """The program cannot be built. The message is one line for the user."""


def build(release: str, *, jobs: int = 2, sources: Path = SOURCES, cache: Path = CACHE) -> Path:
    """Return the program for a release such as ``1.36.3``; build it if sources changed.

    ``jobs``: number of packages to compile in parallel. ``sources``: directory of the program.
    ``cache``: directory in which to create a directory for the release. Raises BuildError.
    """
    files = sorted(each for each in sources.iterdir() if each.suffix in (".go", ".s"))
    go = _go()
    directory = cache / release
    # The name contains the hash of the sources, so an outdated program is never used.
    program = directory / f"reference-{_digest(files)}"
    if program.exists():
        return program
    if not directory.exists():
        print(
            f"building the device manager of Kubernetes {release}: "
            "the first build of a version takes minutes",
            file=sys.stderr,
        )
    directory.mkdir(parents=True, exist_ok=True)
    for old in (*directory.glob("*.go"), *directory.glob("*.s")):
        old.unlink()
    for source in files:
        shutil.copy(source, directory)
    (directory / "go.mod").write_text(go_mod(go, release))
    sums = _SUMS / f"{release}.sum"
    (directory / "go.sum").write_text(sums.read_text() if sums.exists() else "")
    tags = ",".join(f"k1{each}" for each in _minors_up_to(release))
    _run(directory, [go, "build", f"-p={jobs}", f"-tags={tags}", "-o", program.name, "."])
    for old in directory.glob("reference-*"):
        if old != program:
            old.unlink()
    return program


def published() -> list[str]:
    """Return the versions of Kubernetes that Go's module proxy lists. Raises BuildError."""
    listed = _run(CACHE, [_go(), "list", "-m", "-versions", _MODULE], mod_flag=False)
    return listed.split()[1:]


def _go() -> str:
    found = shutil.which("go")
    if found is None:
        raise BuildError("Go is not installed: the real device manager is written in it")
    return found


def _digest(sources: list[Path]) -> str:
    found = hashlib.sha256()
    for source in sources:
        found.update(source.name.encode() + source.read_bytes())
    return found.hexdigest()[:16]


def _minors_up_to(release: str) -> range:
    """Return the minor versions whose build tags a release has. A Go file with the tag ``k134`` is
    for 1.34 and later."""
    return range(OLDEST, minor(release) + 1)


def go_mod(go: str, release: str) -> str:
    """Return a go.mod that requires the release.

    Kubernetes requires its staging modules at v0.0.0, and replaces them with directories of its
    repository. The go.mod replaces them with the published modules of the same release instead.
    """
    described = json.loads(
        _run(CACHE, [go, "mod", "download", "-json", f"{_MODULE}@v{release}"], mod_flag=False)
    )
    text = Path(described["GoMod"]).read_text()
    language = _GO.search(text)
    assert language is not None, "every go.mod names its language"
    replaced = [
        f"replace {module} => {module} {staging_version(release, module)}"
        for module in _STAGING.findall(text)
    ]
    replaced += [f"replace {each.partition(' ')[0]} => {each}" for each in PINNED.get(release, ())]
    version = language[0] if int(language[1]) > _OWN_GO else f"go 1.{_OWN_GO}"
    lines = ["module reference", version, f"require {_MODULE} v{release}", *replaced]
    return "\n".join(lines) + "\n"


def _run(directory: Path, command: list[str], *, mod_flag: bool = True) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    flags = "-buildvcs=false" + (" -mod=mod" if mod_flag else "")
    done = subprocess.run(
        command,
        cwd=directory,
        # Fail if the release requires a newer Go, instead of downloading it.
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "downloading" not in line]
        raise BuildError(f"{' '.join(command[:3])} failed: {' | '.join(lines[-5:])}")
    return done.stdout
