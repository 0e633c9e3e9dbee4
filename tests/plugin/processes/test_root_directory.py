"""Processes with another root directory: the file system of a container image."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest

from devicemanager.plugin.processes import namespace
from devicemanager.plugin.processes.namespace import Bind, NamespaceError, resolved
from devicemanager.plugin.processes.run import SupervisedRun


def test_links_are_followed_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("/run")
    (tmp_path / "var" / "up").symlink_to("../../../run")
    (tmp_path / "loop").symlink_to("loop")
    assert resolved(tmp_path, Path("/var/run/cdi")) == tmp_path / "run" / "cdi"
    assert resolved(tmp_path, Path("/var/up/x")) == tmp_path / "run" / "x"
    assert resolved(tmp_path, Path("var/run/cdi")) == tmp_path / "run" / "cdi"
    assert resolved(tmp_path, Path("/missing/x")) == tmp_path / "missing" / "x"
    with pytest.raises(OSError, match="loop"):
        resolved(tmp_path, Path("/loop/x"))


@pytest.mark.parametrize(
    ("uid", "advice"),
    [(0, "add CAP_SYS_ADMIN, or run this as another user"), (1000, "run this as root")],
)
def test_error_says_who_can_map_the_user(
    monkeypatch: pytest.MonkeyPatch, uid: int, advice: str
) -> None:
    def reject(path: Path, text: str) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(namespace, "_call", lambda *words: None)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(Path, "write_text", reject)
    with pytest.raises(NamespaceError) as raised:
        namespace.enter_user()
    assert str(raised.value).endswith(advice)


def _with_shell(rootfs: Path) -> Path:
    """Create a root directory with a shell and its libraries, and return it."""
    shell = Path("/bin/sh").resolve()
    libraries = subprocess.run(["ldd", shell], capture_output=True, text=True, check=False).stdout
    for path in [shell, *map(Path, re.findall(r"/\S+", libraries))]:
        (rootfs / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, rootfs / path.relative_to("/"))
    (rootfs / "shell").symlink_to(shell)
    (rootfs / "var").mkdir()
    (rootfs / "var" / "run").symlink_to("/run")
    return rootfs


def _tree(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


@pytest.mark.timeout(60)
def test_command_runs_in_the_file_system_of_an_image(tmp_path: Path) -> None:
    rootfs, data = _with_shell(tmp_path / "rootfs"), tmp_path / "data"
    data.mkdir()
    (data / "given").write_text("from the host\n")
    before = _tree(rootfs)
    script = 'read text < /run/cdi/given; echo "$text"; echo "$PWD" * > /var/run/cdi/new'
    binds = (
        Bind(rootfs, Path("/")),
        Bind(Path("/proc"), Path("/proc")),
        Bind(data, Path("/var/run/cdi")),
    )
    output: deque[str] = deque()
    run = SupervisedRun(["/shell", "-c", script], {}, None, binds, output)
    ended = threading.Event()
    run.start(ended.set)
    assert ended.wait(30)
    if any("user namespace" in line for line in output):
        pytest.skip(output[-1])
    assert list(output) == ["from the host"]
    names = sorted({path.parts[0] for path in before} | {"proc", "run"})
    assert (data / "new").read_text().split() == ["/", *names]
    assert _tree(rootfs) == before


_MIRROR = """
import sys
from pathlib import Path
from devicemanager.plugin.processes import namespace
try:
    namespace.enter_container()
except namespace.NamespaceError as error:
    sys.exit(f"skip: {error}")
target = Path(sys.argv[1])
try:
    namespace.replace_directory(target / "missing", Path("x"))
except OSError as error:
    print(error.strerror)
print(*Path(sys.argv[2]).glob("dm-mounts-*"))
"""


@pytest.mark.timeout(60)
def test_failure_of_a_mount_keeps_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _MIRROR, str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        words, capture_output=True, text=True, env={"TMPDIR": str(tmp_path)}, check=False
    )
    if done.stderr.startswith("skip"):
        pytest.skip(done.stderr)
    assert done.stdout == "No such file or directory\n\n", done.stderr
