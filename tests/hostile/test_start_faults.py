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
| no directory for temporary files | test_no_temporary_directory |
| nothing left to open | test_no_descriptors_left |
| a stop that cannot remove its sockets | test_a_stop_that_cannot_clean_up, test_a_stop_on_a_read_only_disk |
| a fork | test_a_forked_child_leaves_the_parent_alone |
| stop, start, restart 50 times | test_fifty_lives |
"""  # noqa: E501

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from devicemanager.core.errors import StartError, StopError
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from tests.hostile import hostile, residue
from tests.hostile.conftest import IMPATIENT, Start, pod
from tests.paths import ROOT

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def rejected(at: Path) -> str:
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
    """107 bytes work; one more is rejected before anything is made."""
    fits = root / ("x" * (107 - len(f"{root}//device-plugins/kubelet.sock")))
    with MockKubelet(fits, IMPATIENT) as kubelet:
        assert len(os.fsencode(kubelet.plugin_socket)) == 107
        assert hostile.register(kubelet.plugin_socket, "a") is not None
    too_long = fits.with_name(fits.name + "x" * surplus)
    text = rejected(too_long)
    assert f"has {107 + surplus} bytes, the kernel allows 107: use a shorter directory" in text
    assert not too_long.exists()


def test_a_relative_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = rejected(Path("here"))
    assert text == "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", ["", "device-plugins", "pod-resources", "plugins_registry"])
def test_a_file_in_place_of(root: Path, name: str) -> None:
    at = root / "node"
    blocked = at / name
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("mine")
    text = rejected(at)
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
        ["mount", "-t", "tmpfs", "-o", "ro,mode=750", "tmpfs", at], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        assert "on a read-only file system" in rejected(at)
    finally:
        subprocess.run(["umount", at], check=True)


AS_NOBODY = """
import os, sys
import watchdog.observers
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.core.errors import StartError, StopError
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
    os.chown(root, 65534, 65534)
    for each in ("device-plugins", "pod-resources", "plugins_registry"):
        (root / each).mkdir()
        os.chown(root / each, 65534, 65534)
    if not name:
        shutil.rmtree(root / "device-plugins")
    (root / name).chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, root],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert str(root / name) in done.stdout


@pytest.mark.parametrize("name", ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock"])
def test_what_is_no_socket_is_left_alone(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir()
    path.write_text("mine")
    assert rejected(root) == f"{path} is not a socket: move it away, or choose another path"
    assert path.read_text() == "mine"


def test_another_kubelet_serves_here(root: Path, kubelet: MockKubelet) -> None:
    """The second is rejected; the first, its plugins and its checkpoint do not notice."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(hostile.RESOURCE, 2)
        text = rejected(root)
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
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(root / "device-plugins" / "left.sock"))
    kubelet = start(IMPATIENT)
    assert hostile.register(kubelet.plugin_socket, "nobody.sock") is not None
    assert not (kubelet.plugin_dir / "left.sock").exists()


@pytest.mark.usefixtures("no_idle_observers")
@pytest.mark.parametrize("where", ["__init__", "start"])
def test_no_watches_left(root: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A node has 128 inotify instances by default; when they are used up we say so.
    Releases of watchdog differ in when they open one."""
    from watchdog.observers import Observer

    def exhausted(*_: Any, **__: Any) -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(Observer, where, exhausted)
    text = rejected(root)
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


@pytest.mark.parametrize("tmpdir", ["missing", "x" * 40])
def test_no_temporary_directory(root: Path, monkeypatch: pytest.MonkeyPatch, tmpdir: str) -> None:
    """One line, and no other directory is taken in its place."""
    place = root / tmpdir
    if tmpdir != "missing":  # there, but too long for sockets: /tmp is taken
        place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))
        kubelet = MockKubelet()
        assert kubelet.root.parent == Path("/tmp")
        kubelet.close()
        return
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with pytest.raises(StartError) as caught:
        MockKubelet()
    assert str(caught.value) == (
        f"cannot make a temporary directory in {place}: No such file or directory: give the "
        "kubelet a root, or set TMPDIR to a directory of at most 30 bytes"
    )


def test_tmpdir_is_where_the_directory_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(root))
    with MockKubelet() as kubelet:
        assert kubelet.root.parent == root


EXHAUSTED = """
import resource, sys
from devicemanager import MockKubelet
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), 4096))
try:
    MockKubelet(sys.argv[1]).start()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("limit", [3, 4, 6, 8, 12, 16])
def test_no_descriptors_left(root: Path, limit: int) -> None:
    """A sentence that names the cause, whatever is opened or imported first."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, root, str(limit)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("StartError ")
    assert "Too many open files" in done.stdout and len(done.stdout.splitlines()) == 1


CRAMPED = """
import resource, sys
from pathlib import Path
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet import process
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    MockKubelet(sys.argv[1]).start()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("left", [20, 60, 100])
def test_no_address_space_left(root: Path, left: int) -> None:
    """gRPC itself would try for ever, or end the program."""
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED, root, str(left << 20)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("StartError the kubelet cannot start: out of memory: its threads")
    assert done.stdout.endswith(" are left: raise the limit (ulimit -v)\n")
    assert len((done.stdout + done.stderr).splitlines()) == 1


def test_no_threads_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory or the number of threads has run out: Python does not tell which."""

    def reject(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", reject)
    kubelet = MockKubelet(root, IMPATIENT)
    with pytest.raises(StartError) as caught:
        kubelet.start()
    assert str(caught.value) == (
        "the kubelet cannot start: can't start new thread: out of memory (ulimit -v) or of "
        "threads (ulimit -u)"
    )
    monkeypatch.undo()
    kubelet.start()
    kubelet.stop()


def test_no_descriptors_left_for_the_first_pod(root: Path) -> None:
    code = """
import resource, sys
from devicemanager import MockKubelet, RequestError
kubelet = MockKubelet(sys.argv[1]).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))
try:
    kubelet.admit("a.yaml")
except RequestError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kubelet.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, root],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    assert re.fullmatch(r"cannot load the manifest parser: .*Too many open files\n", done.stdout), (
        done.stderr
    )


# -- stops that fail ----------------------------------------------------------------------


def test_a_stop_that_cannot_clean_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends everything, says what it could not do once, and nothing is blocked after it."""
    kubelet = MockKubelet(root, IMPATIENT).start()
    sockets = (kubelet.plugin_socket, kubelet.pod_resources_socket)
    unlink = Path.unlink

    def failing(path: Path, missing_ok: bool = False) -> None:
        if path in sockets:
            raise OSError(30, "Read-only file system", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(StopError) as caught:
        kubelet.stop()
    assert str(caught.value) == (
        f"the kubelet has stopped, but: {sockets[0]}: Read-only file system; "
        f"{sockets[1]}: Read-only file system"
    )
    kubelet.stop()
    monkeypatch.undo()
    kubelet.start()
    assert kubelet.admit(pod("a", 0)).admitted
    kubelet.stop()
    assert not any(path.exists() for path in sockets)


@ROOT_ONLY
def test_a_stop_on_a_read_only_disk(root: Path) -> None:
    at = root / "node"
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=750", "tmpfs", at], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        with pytest.raises(StopError, match="Read-only file system"), MockKubelet(at, IMPATIENT):
            subprocess.run(["mount", "-o", "remount,ro", at], check=True)
        assert "on a read-only file system" in rejected(at)
        subprocess.run(["mount", "-o", "remount,rw", at], check=True)
        with MockKubelet(at, IMPATIENT) as kubelet:
            assert hostile.register(kubelet.plugin_socket, "a") is not None
    finally:
        subprocess.run(["umount", at], check=True)


# -- forks --------------------------------------------------------------------------------

FORKS = """
import os, sys, time
from devicemanager import MockKubelet, RequestError
with MockKubelet() as kubelet:
    uid = kubelet.admit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                         "spec": {"containers": [{"name": "m", "image": "i"}]}}).uid
    child = os.fork()
    if child == 0:
        for rejected in (kubelet.start, kubelet.restart, kubelet.capacity):
            try:
                rejected()
            except RequestError as error:
                print(error, flush=True)
        %s
    for _ in range(500):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        sys.exit("the child hangs")
    print(status, kubelet.root.is_dir(), kubelet.plugin_socket.is_socket(),
          kubelet.pod_resources_socket.is_socket(), kubelet.devices(uid))
print(kubelet.root.exists())
"""


@pytest.mark.parametrize("end", ["sys.exit()", "kubelet.stop(); sys.exit()", "os._exit(0)"])
def test_a_forked_child_leaves_the_parent_alone(end: str) -> None:
    """Also when it leaves the with block on its way out."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS % end],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    *said, ended, gone = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    assert all(line.startswith("this kubelet belongs to process ") for line in said)
    assert (ended, gone) == ("0 True True True {}", "False"), done.stderr


def _failing(*_: object, **__: object) -> None:
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
