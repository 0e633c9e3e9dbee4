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

from tools.differential.building import go_mod

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


SERVER_VERSION: Final = "1.37.2"
"""Version of the API server that answers the requests of ``tests/apiserver/real_answers``."""
SERVER_VARIABLE: Final = "DEVICEMANAGER_API_SERVER_BINARIES"
"""Environment variable that names a directory with this API server and its etcd."""
_SERVER_PROGRAMS: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}


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
        _run([*command, package], SOURCES, "readonly")
        stamp.write_text(_digest(name))
    return BINARIES


def server_binaries(version: str = SERVER_VERSION) -> Path:
    """Return the directory with etcd and the API server of a version.

    Raises BuildError if they are missing.
    """
    directory = Path(os.environ.get(SERVER_VARIABLE) or _server_directory(version))
    if any(not (directory / name).is_file() for name in _SERVER_PROGRAMS):
        raise BuildError(
            f"no API server {version} in {directory}: run `python -m tools.cluster.build "
            f"--server {version}`, or set {SERVER_VARIABLE}"
        )
    return directory


def build_server(version: str = SERVER_VERSION, jobs: int = 2) -> Path:
    """Build etcd and the API server of a version; return their directory. Raises BuildError.

    ``version`` is a release such as ``1.37.2``. Programs that exist are not built again.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError("Go is not installed: install it to build the API server")
    directory = _server_directory(version)
    directory.mkdir(parents=True, exist_ok=True)
    module = directory.parent / "module"
    for name, package in _SERVER_PROGRAMS.items():
        if (directory / name).exists():
            continue
        _write_module(go, module, version)
        print(f"building {name} of Kubernetes {version}", file=sys.stderr, flush=True)
        major, minor, _ = version.split(".")
        link = f"-s -w -X {_VERSION}.gitVersion=v{version} "
        link += f"-X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
        command = [go, "build", f"-p={jobs}", "-ldflags", link, "-o", str(directory / name)]
        _run([*command, package], module, "mod")
    return directory


def _server_directory(version: str) -> Path:
    return BINARIES.parent / version / "bin"


def _write_module(go: str, module: Path, version: str) -> None:
    """Write a module that requires a release, with its published staging modules."""
    module.mkdir(parents=True, exist_ok=True)
    (module / "go.mod").write_text(go_mod(go, version))
    imports = "".join(f'\t_ "{each}"\n' for each in _SERVER_PROGRAMS.values())
    (module / "tools.go").write_text(
        f"//go:build tools\n\npackage server\n\nimport (\n{imports})\n"
    )
    _run([go, "mod", "tidy"], module, "mod")


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


def _run(command: list[str], directory: Path, modules: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        # GOTOOLCHAIN=local rejects modules that require a newer Go. Otherwise Go would download it.
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": f"-buildvcs=false -mod={modules}"},
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
    parser.add_argument(
        "--server",
        nargs="?",
        const=SERVER_VERSION,
        metavar="VERSION",
        help=f"build only etcd and the API server of a release (default: {SERVER_VERSION})",
    )
    args = parser.parse_args()
    try:
        print(build_server(args.server, args.jobs) if args.server else build(args.jobs))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
