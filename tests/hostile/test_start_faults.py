"""Starts and stops that fail, and what starting and stopping leaves behind.

| fault | test |
|---|---|
| socket path over 107 bytes | test_socket_path_over_the_limit_is_rejected |
| relative directory | test_relative_directory_is_rejected |
| not writable: a file in its place, read-only file system, no permission | test_file_in_place_of_a_directory_is_rejected, test_read_only_directory_is_rejected, test_directory_without_permission_is_rejected |
| another file in place of kubelet.sock | test_file_in_place_of_a_socket_is_not_touched |
| another kubelet serves in the directory | test_second_kubelet_in_a_directory_is_rejected |
| stale sockets of a killed kubelet | test_stale_sockets_are_replaced |
| inotify exhausted | test_start_without_inotify_instances_is_rejected |
| no directory for temporary files | test_missing_tmpdir_is_rejected_and_long_one_avoided |
| no file descriptors left | test_start_without_descriptors_is_rejected |
| a stop that cannot remove the sockets | test_stop_reports_sockets_that_it_cannot_remove, test_stop_on_a_read_only_disk_reports_it |
| a fork | test_forked_child_does_not_affect_the_parent |
| stop, start, restart 50 times | test_fifty_starts_and_stops_leave_nothing |
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
from tests.hostile.conftest import IMPATIENT, PATIENT, Start, pod
from tests.paths import ROOT

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def rejected(at: Path) -> str:
    """Return why a kubelet does not start here, in one line."""
    kubelet = MockKubelet(at, IMPATIENT)
    with pytest.raises(StartError) as caught:
        kubelet.start()
    kubelet.stop()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("surplus", [1, 100])
def test_socket_path_over_the_limit_is_rejected(root: Path, surplus: int) -> None:
    """107 bytes work; one more is rejected before anything is created."""
    fits = root / ("x" * (107 - len(f"{root}//device-plugins/kubelet.sock")))
    with MockKubelet(fits, IMPATIENT) as kubelet:
        assert len(os.fsencode(kubelet.plugin_socket)) == 107
        assert hostile.register(kubelet.plugin_socket, "a") is not None
    too_long = fits.with_name(fits.name + "x" * surplus)
    text = rejected(too_long)
    assert f"has {107 + surplus} bytes, the kernel allows 107: use a shorter directory" in text
    assert not too_long.exists()


def test_relative_directory_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = rejected(Path("here"))
    assert text == "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", ["", "device-plugins", "pod-resources", "plugins_registry"])
def test_file_in_place_of_a_directory_is_rejected(root: Path, name: str) -> None:
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
def test_read_only_directory_is_rejected(root: Path) -> None:
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


AS_UNPRIVILEGED = """
import os, sys
import watchdog.observers
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.core.errors import StartError, StopError
# Not before the imports: this user may not be able to read the modules.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    MockKubelet(sys.argv[1]).start()
except StartError as error:
    print(error)
"""


@ROOT_ONLY
@pytest.mark.parametrize("name", ["", "device-plugins", "pod-resources", "plugins_registry"])
def test_directory_without_permission_is_rejected(root: Path, name: str) -> None:
    root.chmod(0o755)
    os.chown(root, 65534, 65534)
    for each in ("device-plugins", "pod-resources", "plugins_registry"):
        (root / each).mkdir()
        os.chown(root / each, 65534, 65534)
    if not name:
        shutil.rmtree(root / "device-plugins")
    (root / name).chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", AS_UNPRIVILEGED, root],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert str(root / name) in done.stdout


@pytest.mark.parametrize("name", ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock"])
def test_file_in_place_of_a_socket_is_not_touched(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir()
    path.write_text("mine")
    assert rejected(root) == (
        f"{path} exists and is not a socket: remove it, or choose another directory"
    )
    assert path.read_text() == "mine"


def test_second_kubelet_in_a_directory_is_rejected(root: Path, kubelet: MockKubelet) -> None:
    """The first one, its plugins and its checkpoint are not affected."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(hostile.RESOURCE, 2)
        text = rejected(root)
        assert text.startswith("another kubelet serves ")
        assert text.endswith("stop it or choose another directory")
        assert (kubelet.plugin_dir / "p.sock").exists()
        assert kubelet.admit(pod("a")).admitted
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None


def test_stale_sockets_are_replaced(root: Path, start: Start) -> None:
    for name in ("device-plugins", "pod-resources"):
        (root / name).mkdir()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(root / name / "kubelet.sock"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(root / "device-plugins" / "left.sock"))
    kubelet = start(IMPATIENT)
    assert hostile.register(kubelet.plugin_socket, "absent.sock") is not None
    assert not (kubelet.plugin_dir / "left.sock").exists()


@pytest.mark.usefixtures("no_idle_observers")
@pytest.mark.parametrize("where", ["__init__", "start"])
def test_start_without_inotify_instances_is_rejected(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A node has 128 inotify instances by default. Releases of watchdog open one at different
    moments."""
    from watchdog.observers import Observer

    def exhausted(*_: Any, **__: Any) -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(Observer, where, exhausted)
    text = rejected(root)
    assert text == f"cannot watch {root}/plugins_registry: inotify instance limit reached"
    monkeypatch.undo()
    with MockKubelet(root, IMPATIENT):
        pass


def test_temporary_root_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after a stop nor after a failed start."""
    with MockKubelet() as kubelet:
        root = kubelet.root
        assert root.is_dir()
    assert not root.exists()
    monkeypatch.setattr("devicemanager.kubelet.directories.Directories.prepare", _failing)
    kubelet = MockKubelet()
    root = kubelet.root
    with pytest.raises(StartError), kubelet:
        pass
    assert not root.exists()


@pytest.mark.parametrize("tmpdir", ["missing", "x" * 40])
def test_missing_tmpdir_is_rejected_and_long_one_avoided(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmpdir: str
) -> None:
    """The error is one line; no other directory is used instead."""
    place = root / tmpdir
    if tmpdir != "missing":  # exists, but too long for sockets: /tmp is used
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
        f"cannot make a temporary directory in {place}: No such file or directory: choose a "
        "root directory, or set TMPDIR to a directory whose path has at most 30 bytes"
    )


def test_temporary_root_is_in_tmpdir(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_start_without_descriptors_is_rejected(root: Path, limit: int) -> None:
    """The error names the cause, no matter what is opened or imported first."""
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
def test_start_without_address_space_is_rejected(root: Path, left: int) -> None:
    """gRPC itself would retry forever or abort the program."""
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED, root, str(left << 20)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("StartError the kubelet cannot start: out of memory: its threads")
    assert done.stdout.endswith(" MiB are free: raise the limit (ulimit -v)\n")
    assert len((done.stdout + done.stderr).splitlines()) == 1


def test_start_without_threads_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does not report whether memory or the number of threads has run out."""

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


def test_first_admission_without_descriptors_is_rejected(root: Path) -> None:
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


def test_stop_reports_sockets_that_it_cannot_remove(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything stops, the error names each problem once, and the kubelet can start again."""
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
        f"the kubelet has stopped, but could not clean up: {sockets[0]}: Read-only file system; "
        f"{sockets[1]}: Read-only file system"
    )
    kubelet.stop()
    monkeypatch.undo()
    kubelet.start()
    assert kubelet.admit(pod("a", 0)).admitted
    kubelet.stop()
    assert not any(path.exists() for path in sockets)


@ROOT_ONLY
def test_stop_on_a_read_only_disk_reports_it(root: Path) -> None:
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
def test_forked_child_does_not_affect_the_parent(end: str) -> None:
    """Even if the child leaves the with block."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS % end],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=ROOT,
    )
    *errors, ended, exists = done.stdout.splitlines()
    assert len(errors) == 3, done.stderr
    assert all(line.startswith("this kubelet belongs to process ") for line in errors)
    assert (ended, exists) == ("0 True True True {}", "False"), done.stderr


def _failing(*_: object, **__: object) -> None:
    raise StartError("no")


def test_fifty_starts_and_stops_leave_nothing(root: Path, nothing_left: residue.Residue) -> None:
    """Every fifth with a plugin and a pod."""
    kubelet = MockKubelet(root, PATIENT)  # the plugin has to meet the deadlines
    for life in range(50):
        with kubelet:  # stopped also if an assertion fails, which would otherwise report leaks
            if life % 5 == 0:
                with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
                    assert hostile.register(kubelet.plugin_socket, "p.sock") is None
                    kubelet.wait_for_resource(hostile.RESOURCE, 2)
                    uid = kubelet.admit(pod(f"p{life}")).pod.uid
                    kubelet.restart()
                    assert kubelet.devices(uid) == {"main": {hostile.RESOURCE: ["d0"]}}
                    kubelet.terminate(uid)
    residue.assert_back_to(nothing_left)
    assert not kubelet.plugin_socket.exists()
    assert len(kubelet.events.recent(EventKind.STARTED)) == 60
    kubelet.check()
