"""Build the programs of a control plane, and kubectl, from the Go modules of a Kubernetes release.

``python -m tools.cluster.build --kubernetes 1.37.2`` takes 20 minutes the first time
and stores the programs in ``.cache/cluster/1.37.2/bin``. etcd has the version that the release
requires.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.differential.building import go_mod

VARIABLE: Final = "DEVICEMANAGER_CLUSTER_BINARIES"
"""Environment variable that names a directory with the programs, such as those of a
distribution."""
NEWEST: Final = "1.37.2"
"""Release of the control plane by default, and of the API server that answers the requests of
``tests/apiserver/real_answers``."""
_CACHE: Final = Path(__file__).parents[2] / ".cache" / "cluster"
_VERSION: Final = "k8s.io/component-base/version"
_SERVER: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
_PROGRAMS: Final = _SERVER | {
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
"""Go package by program."""


class BuildError(Exception):
    """Error for a program that cannot be built or is missing. The text is one line for the user."""


def binaries(version: str = NEWEST) -> Path:
    """Return the directory with the control plane and kubectl. Raises BuildError."""
    return _complete(Path(os.environ.get(VARIABLE) or _directory(version)), _PROGRAMS, version)


def server_binaries(version: str = NEWEST) -> Path:
    """Return the directory with etcd and the API server of a release. Raises BuildError."""
    return _complete(_directory(version), _SERVER, version)


def _complete(directory: Path, programs: Iterable[str], version: str) -> Path:
    missing = [name for name in programs if not (directory / name).is_file()]
    if missing:
        raise BuildError(
            f"no {', '.join(missing)} in {directory}: run `python -m tools.cluster.build "
            f"--kubernetes {version}`, or set {VARIABLE} to a directory that has them"
        )
    return directory


def build(version: str = NEWEST, *, server_only: bool = False, jobs: int = 2) -> Path:
    """Build programs that are missing, and return their directory. Raises BuildError.

    ``version`` is a release such as ``1.37.2``. ``jobs`` is the number of packages to compile in
    parallel.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError("Go is not installed: install it to build the control plane")
    programs = _SERVER if server_only else _PROGRAMS
    directory = _directory(version)
    missing = [name for name in programs if not (directory / name).is_file()]
    if missing:
        module = directory.parent / "module"
        _write_module(go, module, version)
        directory.mkdir(exist_ok=True)
        for name in missing:
            print(f"building {name} of Kubernetes {version}", file=sys.stderr, flush=True)
            command = [go, "build", f"-p={jobs}", "-ldflags", _link(version)]
            _run([*command, "-o", str(directory / name), _PROGRAMS[name]], module)
    return directory


def _directory(version: str) -> Path:
    return _CACHE / version / "bin"


def _link(version: str) -> str:
    """Return the linker flags that set the version which the programs report."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X {_VERSION}.{name}={value}" for name, value in values.items())


def _write_module(go: str, module: Path, version: str) -> None:
    """Write a module that requires a release, with its published staging modules."""
    module.mkdir(parents=True, exist_ok=True)
    (module / "go.mod").write_text(go_mod(go, version))
    imports = "".join(f'\t_ "{each}"\n' for each in _PROGRAMS.values())
    (module / "tools.go").write_text(
        f"//go:build tools\n\npackage server\n\nimport (\n{imports})\n"
    )
    _run([go, "mod", "tidy"], module)


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        # GOTOOLCHAIN=local rejects modules that require a newer Go. Otherwise Go would download it.
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=mod"},
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
        "--kubernetes",
        default=NEWEST,
        metavar="VERSION",
        help=f"release to build (default: {NEWEST})",
    )
    parser.add_argument("--server", action="store_true", help="build only etcd and the API server")
    parser.add_argument(
        "--jobs", type=int, default=2, help="packages to compile in parallel (default: 2)"
    )
    args = parser.parse_args()
    try:
        print(build(args.kubernetes, server_only=args.server, jobs=args.jobs))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
