"""Files of an image: interpreter, packages, shared libraries."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.image.recipe import Recipe

_ROOT: Final = Path(__file__).resolve().parents[2]
_CONSTRAINTS: Final = _ROOT / "constraints" / "dev.txt"
_UNUSED: Final = (
    *("test", "tests", "_test*.so", "idlelib", "tkinter", "_tkinter*.so", "turtledemo"),
    *("ensurepip", "site-packages", "dist-packages", "config-*", "__pycache__", "*.a"),
)
"""Parts of the standard library that are left out."""
_OPENED_BY_LIBC: Final = ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
"""Libraries that ldd does not print, because libc opens them when it needs them."""


def fill(root: Path, recipe: Recipe) -> None:
    """Write the files of the image into the directory ``root``."""
    python = Path(sys.base_prefix, "bin", f"python{sysconfig.get_python_version()}")
    if not python.exists():
        raise SystemExit(f"image: no Python interpreter at {python}")
    if shutil.which("ldd") is None:
        raise SystemExit("image: ldd is not installed: it is part of glibc")
    if importlib.util.find_spec("pip") is None:
        raise SystemExit("image: pip is not installed: run `make setup`")
    for name in ("etc", "tmp"):
        (root / name).mkdir(parents=True)
    library = Path(sysconfig.get_path("stdlib"))
    _copy(python, root)
    unused = shutil.ignore_patterns(*_UNUSED)
    shutil.copytree(library, _at(root, library), ignore=unused, ignore_dangling_symlinks=True)
    # The originals: a module can name the directory of a library relative to its own directory.
    modules = [Path("/", each.relative_to(root)) for each in root.rglob("*.so")]
    # A virtual environment, as in the Dockerfile.
    packages = _at(root, recipe.directory)
    install(packages, recipe)
    (packages / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (packages / "bin/python").symlink_to(os.path.relpath(python, f"{recipe.directory}/bin"))
    # The exit status is not 0 if one of the files needs no library.
    printed = _run(["ldd", python, *modules, *packages.rglob("*.so")]).stdout
    for path, target in libraries(printed).items():
        if not path.is_relative_to(root):  # otherwise part of a package
            _copy(path, root, target)
    # This bytecode does not depend on the times of files.
    compileall = [sys.executable, "-m", "compileall", "-qq", "--invalidation-mode=unchecked-hash"]
    _run([*compileall, "-s", root, "-p", "/", root])
    users = {recipe.user: "nonroot", "0": "root"}
    lines = [f"{name}:x:{uid}:{uid}::/:\n" for uid, name in users.items()]
    (root / "etc/passwd").write_text("".join(lines))
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")


def install(packages: Path, recipe: Recipe) -> None:
    """Install the project and its dependencies into a directory of the image."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--ignore-installed", "--no-compile", "--no-warn-script-location"]
    pip += ["--constraint", str(_CONSTRAINTS), f"{_ROOT}{recipe.extras}"]
    done = _run([*pip, "--prefix", packages])
    if done.returncode != 0:
        raise SystemExit(f"image: pip failed: {last_line(done)}")
    for script in (packages / "bin").iterdir():
        # The first line names the interpreter that ran pip.
        first, _, text = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!"):
            script.write_bytes(f"#!{recipe.directory}/bin/python\n".encode() + text)
    # They contain paths of this machine, and only pip reads them.
    for name in ("RECORD", "direct_url.json"):
        for each in packages.rglob(f"*.dist-info/{name}"):
            each.unlink()


def libraries(printed: str) -> dict[Path, Path]:
    """Return the paths of shared libraries in the image, by their paths on this machine.

    ``printed`` is the output of ldd. A library that ldd does not find is ignored: the module does
    not work on this machine either.
    """
    lines = re.findall(r"^\s+(?:(\S+) => )?(/.+) \(0x[0-9a-f]+\)$", printed, re.MULTILINE)
    libc = next((Path(path) for name, path in lines if name == "libc.so.6"), None)
    if libc is None:
        raise SystemExit("image: this Python is static or does not use glibc (musl, for example)")
    found = {libc.with_name(name): libc.with_name(name) for name in _OPENED_BY_LIBC}
    found = {path: target for path, target in found.items() if path.exists()}
    for name, path in lines:
        # The loader is at the path that all programs contain. It finds the others beside libc,
        # wherever they are on this machine.
        loader = not name or name.startswith("ld-linux")
        found[Path(path)] = Path(path) if loader else libc.with_name(name)
    return found


def _at(root: Path, path: str | Path) -> Path:
    return root / Path(path).relative_to("/")


def _copy(path: Path, root: Path, target: Path | None = None) -> None:
    copy = _at(root, target or path)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line on standard error of a command that failed."""
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
