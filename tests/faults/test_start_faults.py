"""Where a kubelet cannot start, and that starting and stopping leaves nothing.

| fault | test |
|---|---|
| socket path over 107 bytes | test_a_socket_path_over_the_limit |
| relative directory | test_a_relative_directory |
| unwritable: a file in its place, read-only file system, no permission | test_a_file_in_place_of, test_a_read_only_directory, test_no_permission |
| something else in place of kubelet.sock | test_what_is_no_socket_is_left_alone |
| another kubelet serves there | test_another_kubelet_serves_here |
| a dead kubelet's sockets | test_sockets_of_the_dead_are_taken_over |
| inotify exhausted | test_no_watches_left |
| stop, start, restart 50 times | test_fifty_lives |
"""  # noqa: E501

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devicemanager.core.errors import StartError
from devicemanager.events import EventKind
from devicemanager.kubelet.mock import MockKubelet
from tests.faults import hostile, residue
from tests.faults.conftest import IMPATIENT, Start, pod

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def refused(at: Path) -> str:
    """Why a kubelet does not start here; the text must be one line."""
    kubelet = MockKubelet(at, IMPATIENT)
    with pytest.raises(StartError) as caught:
        kubelet.start()
    kubelet.stop()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("surplus", [1, 100])
def test_a_socket_path_over_the_limit(root: Path, surplus: int) -> None:
    """107 bytes work; one more is refused before anything is made."""
    fits = root / ("x" * (107 - len(f"{root}//device-plugins/kubelet.sock")))
    with MockKubelet(fits, IMPATIENT) as kubelet:
        assert len(os.fsencode(kubelet.plugin_socket)) == 107
        assert hostile.register(kubelet.plugin_socket, "a") is not None
    too_long = fits.with_name(fits.name + "x" * surplus)
    text = refused(too_long)
    assert f"has {107 + surplus} bytes, the kernel allows 107: use a shorter directory" in text
    assert not too_long.exists()


def test_a_relative_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = refused(Path("here"))
    assert text == "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", ["", "device-plugins", "pod-resources", "plugins_registry"])
def test_a_file_in_place_of(root: Path, name: str) -> None:
    at = root / "node"
    blocked = at / name
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("mine")
    text = refused(at)
    assert str(blocked) in text
    assert "directory" in text
    assert blocked.read_text() == "mine"
    blocked.unlink()
    with MockKubelet(at, IMPATIENT):
        pass


@ROOT_ONLY
def test_a_read_only_directory(root: Path) -> None:
    at = root / "node"
    with MockKubelet(at, IMPATIENT):
        pass
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", at], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        assert "Read-only file system" in refused(at)
    finally:
        subprocess.run(["umount", at], check=True)


AS_NOBODY = """
import os, sys
import watchdog.observers
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.core.errors import StartError
# Only now: another user may not be able to read what was imported.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    MockKubelet(sys.argv[1]).start()
except StartError as error:
    print(error)
"""


@ROOT_ONLY
@pytest.mark.parametrize("name", ["", "device-plugins", "pod-resources", "plugins_registry"])
def test_no_permission(root: Path, name: str) -> None:
    root.chmod(0o755)
    for each in ("device-plugins", "pod-resources", "plugins_registry"):
        (root / each).mkdir()
        (root / each).chmod(0o777)
    if not name:
        shutil.rmtree(root / "device-plugins")
    (root / name).chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, root],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert str(root / name) in done.stdout


@pytest.mark.parametrize("name", ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock"])
def test_what_is_no_socket_is_left_alone(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir()
    path.write_text("mine")
    assert refused(root) == f"{path} is not a socket: move it away, or choose another path"
    assert path.read_text() == "mine"


def test_another_kubelet_serves_here(root: Path, kubelet: MockKubelet) -> None:
    """The second is refused; the first, its plugins and its checkpoint do not notice."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(hostile.RESOURCE, 2)
        text = refused(root)
        assert text.startswith("another kubelet serves ")
        assert text.endswith("stop it or choose another directory")
        assert (kubelet.plugin_dir / "p.sock").exists()
        assert kubelet.admit(pod("a")).admitted
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None


def test_sockets_of_the_dead_are_taken_over(root: Path, start: Start) -> None:
    for name in ("device-plugins", "pod-resources"):
        (root / name).mkdir()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(root / name / "kubelet.sock"))
    (root / "device-plugins" / "left.sock").touch()
    kubelet = start()
    assert hostile.register(kubelet.plugin_socket, "nobody.sock") is not None
    assert not (kubelet.plugin_dir / "left.sock").exists()


@pytest.mark.parametrize("where", ["__init__", "start"])
def test_no_watches_left(root: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A node has 128 inotify instances by default; when they are used up we say so.
    Releases of watchdog differ in when they open one."""
    from watchdog.observers import Observer

    def exhausted(*_: Any, **__: Any) -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(Observer, where, exhausted)
    text = refused(root)
    assert text == f"cannot watch {root}/plugins_registry: inotify instance limit reached"
    monkeypatch.undo()
    with MockKubelet(root, IMPATIENT):
        pass


def test_a_kubelet_without_a_root_leaves_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it does not start."""
    with MockKubelet() as kubelet:
        own = kubelet.root
        assert own.is_dir()
    assert not own.exists()
    monkeypatch.setattr("devicemanager.kubelet.directories.Directories.prepare", _failing)
    kubelet = MockKubelet()
    own = kubelet.root
    with pytest.raises(StartError), kubelet:
        pass
    assert not own.exists()


def _failing(_: object) -> None:
    raise StartError("no")


def test_fifty_lives(root: Path, nothing_left: residue.Residue) -> None:
    """Every fifth with a plugin and a pod; none leaves anything behind."""
    kubelet = MockKubelet(root, IMPATIENT)
    for life in range(50):
        kubelet.start()
        if life % 5 == 0:
            with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
                assert hostile.register(kubelet.plugin_socket, "p.sock") is None
                kubelet.wait_for_resource(hostile.RESOURCE, 2)
                uid = kubelet.admit(pod(f"p{life}")).pod.uid
                kubelet.restart()
                assert kubelet.devices(uid) == {"main": {hostile.RESOURCE: ["d0"]}}
                kubelet.terminate(uid)
        kubelet.stop()
    residue.assert_back_to(nothing_left)
    assert not kubelet.plugin_socket.exists()
    assert len(kubelet.events.recent(EventKind.STARTED)) == 60
    kubelet.check()
