"""Build the programs of a control plane: etcd, kube-apiserver, kube-scheduler and controllers.

``python -m tools.cluster.build`` takes 20 minutes of CPU time the first time and stores the
programs in ``.cache``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "DEVICEMANAGER_CLUSTER_BINARIES"
"""Environment variable that names a directory with the programs, such as those of a
distribution."""
SOURCES: Final = Path(__file__).parent / "go"
BINARIES: Final = Path(__file__).parents[2] / ".cache" / "cluster" / "bin"
_KUBERNETES: Final = "v1.32.13"
_VERSION: Final = "k8s.io/component-base/version"
_LINK: Final = (
    f"-s -w -X {_VERSION}.gitVersion={_KUBERNETES} "
    f"-X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=32"
)
_PROGRAMS: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "controllers": "./controllers",
}
"""Go package by program."""


class BuildError(Exception):
    """Error for a program that cannot be built or is missing. The text is one line for the user."""


def binaries() -> Path:
    """Return the directory that has all programs. Raises BuildError if there is none."""
    directory = Path(os.environ.get(VARIABLE) or BINARIES)
    missing = [name for name in _PROGRAMS if not (directory / name).is_file()]
    if missing:
        raise BuildError(
            f"no {', '.join(missing)} in {directory}: run `python -m tools.cluster.build`, or set "
            f"{VARIABLE} to a directory that has them"
        )
    return directory


def build(jobs: int = 2) -> Path:
    """Build programs that are missing or outdated, and return their directory.

    ``jobs`` is the number of packages to compile in parallel. Raises BuildError.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError("Go is not installed: install it to build the control plane")
    BINARIES.mkdir(parents=True, exist_ok=True)
    for name, package in _PROGRAMS.items():
        stamp = BINARIES / f"{name}.sources"
        if (BINARIES / name).exists() and stamp.exists() and stamp.read_text() == _digest(name):
            continue
        print(f"building {name} from {package}", file=sys.stderr, flush=True)
        command = [go, "build", f"-p={jobs}", "-ldflags", _LINK, "-o", str(BINARIES / name)]
        _run([*command, package])
        stamp.write_text(_digest(name))
    return BINARIES


def _digest(program: str) -> str:
    """Return a hash of the pinned Go modules. For the program ``controllers``, include its source
    files."""
    found = hashlib.sha256(_LINK.encode())
    names = ["go.mod", "go.sum"]
    if program == "controllers":
        names += sorted(f"controllers/{path.name}" for path in SOURCES.glob("controllers/*.go"))
    for name in names:
        found.update(name.encode() + (SOURCES / name).read_bytes())
    return found.hexdigest()


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=SOURCES,
        # GOTOOLCHAIN=local rejects modules that require a newer Go. Otherwise Go would download it.
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=readonly"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "downloading" not in line]
        raise BuildError(f"{' '.join(command[-2:])} failed: {' | '.join(lines[-5:])}")


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster.build", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=2, help="packages to compile in parallel (default: 2)"
    )
    try:
        print(build(parser.parse_args().jobs))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
