"""The kubelet's directories: created, checked, and cleared of stale sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from checkpoint import CHECKPOINT_NAME
from devicemanager import MockKubelet
from devicemanager.core.errors import StartError
from devicemanager.kubelet.directories import Directories, OwnedDirectory


@pytest.fixture
def root(directory):
    return directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_paths_are_those_of_a_kubelet():
    directories = Directories(Path("/r"))
    assert directories.plugin_socket == Path("/r/device-plugins/kubelet.sock")
    assert directories.pod_resources_socket == Path("/r/pod-resources/kubelet.sock")
    assert directories.plugins_registry_dir == Path("/r/plugins_registry")
    assert directories.checkpoint_path == Path("/r/device-plugins/kubelet_internal_checkpoint")


def test_directories_are_created(root):
    directories = Directories(root / "new")
    directories.prepare()
    made = [
        directories.plugin_dir,
        directories.plugins_registry_dir,
        directories.pod_resources_socket.parent,
    ]
    assert [mode(each) for each in made] == [0o750] * 3
    directories.prepare()


def test_prepare_removes_only_sockets(root):
    directories = Directories(root)
    directories.plugin_dir.mkdir()
    (directories.plugin_dir / "directory").mkdir()
    (directories.plugin_dir / "link-to-directory").symlink_to("directory")
    (directories.plugin_dir / CHECKPOINT_NAME).write_bytes(b"kept")
    (directories.plugin_dir / "file").touch()
    (directories.plugin_dir / ".hidden").touch()
    (directories.plugin_dir / "dangling").symlink_to("nowhere")
    (directories.plugin_dir / "z").symlink_to("z")
    (directories.plugin_dir / "link-to-file").symlink_to(CHECKPOINT_NAME)
    os.mkfifo(directories.plugin_dir / "fifo")
    others = {entry.name for entry in directories.plugin_dir.iterdir()}
    (root / "elsewhere").mkdir()
    with socket.socket(socket.AF_UNIX) as served, socket.socket(socket.AF_UNIX) as other:
        served.bind(str(directories.plugin_dir / "plugin.sock"))
        served.listen()
        other.bind(str(root / "elsewhere" / "other.sock"))
        (directories.plugin_dir / "link-to-socket").symlink_to(root / "elsewhere" / "other.sock")
        directories.prepare()
    assert {entry.name for entry in directories.plugin_dir.iterdir()} == others
    assert directories.checkpoint_path.read_bytes() == b"kept"
    assert (root / "elsewhere" / "other.sock").is_socket()


NAMES = ["", "device-plugins", "plugins_registry", "pod-resources"]


def test_directory_that_cannot_be_opened_is_named(root):
    name = "x" * 300
    with OwnedDirectory(root) as parent:
        for above in (None, parent):
            with pytest.raises(StartError) as error:
                OwnedDirectory(root / name, above)
            assert str(error.value) == f"cannot use directory {root / name}: File name too long"


def test_file_is_created_once(root):
    with OwnedDirectory(root) as directory:
        directory.touch("new")
        assert mode(root / "new") == 0o644 & ~_umask()
        (root / "new").write_text("kept")
        directory.touch("new")
        assert (root / "new").read_text() == "kept"
        (root / "link").symlink_to("elsewhere")
        with pytest.raises(StartError) as error:
            directory.touch("link")
        assert str(error.value).startswith(f"cannot create {root / 'link'}: ")
        assert not (root / "elsewhere").exists()


def _umask():
    found = os.umask(0)
    os.umask(found)
    return found


def test_entry_that_cannot_be_removed_is_named(root):
    (root / "directory").mkdir()
    with OwnedDirectory(root) as directory:
        with pytest.raises(StartError, match=rf"^cannot remove {root}/directory: "):
            directory.remove("directory")
        directory.remove("missing")
        (root / "file").touch()
        directory.remove("file")
        assert list(directory.files()) == []


def test_link_to_a_directory_counts_as_a_file(root):
    (root / "directory").mkdir()
    (root / "link").symlink_to("directory")
    (root / "nowhere").symlink_to("missing")
    with OwnedDirectory(root) as directory:
        assert list(directory.files()) == ["link", "nowhere"]


def test_prepare_removes_only_stale_kubelet_sockets_of_pod_resources(root):
    directories = Directories(root)
    directories.prepare()
    where = directories.pod_resources_socket.parent
    private = "." + "0123456789abcdef"[: len("kubelet.sock") - 1]
    for name in ("kubelet.sock", private, "agent.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(where / name))
    directories.prepare()
    assert [entry.name for entry in where.iterdir()] == ["agent.sock"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_link_in_place_of_a_directory_is_rejected(root, name, target):
    """Its target may belong to another user: nothing there is removed."""
    node = root / "node"
    elsewhere = root / "elsewhere"
    elsewhere.mkdir(mode=0o750)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(elsewhere / "other.sock"))
    if name:
        node.mkdir(mode=0o750)
    (node / name).symlink_to(root / target)
    with pytest.raises(StartError) as error:
        Directories(node).prepare()
    assert str(node / name) in str(error.value) and "\n" not in str(error.value)
    if target == "elsewhere":
        assert str(error.value) == (
            f"{node / name} is a symbolic link: use the path of the directory itself"
        )
    assert (elsewhere / "other.sock").is_socket()


@pytest.mark.parametrize("name", NAMES)
def test_file_in_place_of_a_directory_is_rejected(root, name):
    node = root / "node"
    if name:
        node.mkdir(mode=0o750)
    (node / name).write_text("mine")
    with pytest.raises(StartError) as error:
        Directories(node).prepare()
    assert str(error.value) == f"{node / name} is not a directory: choose another path"
    assert (node / name).read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_world_writable_directory_is_rejected(root, name):
    """A user could replace a file in it with a link."""
    (root / name).mkdir(exist_ok=True)
    (root / name).chmod(0o777)
    with pytest.raises(StartError) as error:
        Directories(root).prepare()
    assert str(error.value) == (
        f"directory {root / name} is writable by others: run chmod o-w on it, or choose another "
        "directory"
    )
    (root / name).chmod(0o770)
    Directories(root).prepare()


@pytest.mark.parametrize("name", NAMES)
def test_directory_of_another_user_is_rejected(root, name, monkeypatch):
    (root / name).mkdir(exist_ok=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    wanted = f"^directory {root} belongs to user .*, but the kubelet runs as user 4711"
    with pytest.raises(StartError, match="^" + wanted):
        Directories(root).prepare()
    monkeypatch.undo()
    if os.geteuid() == 0:  # only root can change the owner
        os.chown(root / name, 4711, -1)
        with pytest.raises(StartError, match=f"^directory {root / name} belongs to user 4711"):
            Directories(root).prepare()


def test_directory_replaced_during_prepare_is_not_touched(root, monkeypatch):
    """The directory that was opened is cleared, not the one that has its name now."""
    directories = Directories(root)
    directories.prepare()
    (root / "victim").mkdir()
    with socket.socket(socket.AF_UNIX) as precious, socket.socket(socket.AF_UNIX) as stale:
        precious.bind(str(root / "victim" / "p.sock"))
        stale.bind(str(directories.plugin_dir / "p.sock"))
    scandir = os.scandir

    def exchange(descriptor):
        if not (root / "moved").exists():
            directories.plugin_dir.rename(root / "moved")
            directories.plugin_dir.symlink_to(root / "victim")
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", exchange)
    directories.prepare()
    monkeypatch.undo()
    assert (root / "victim" / "p.sock").is_socket()
    assert not (root / "moved" / "p.sock").exists()


def test_prepare_removes_sockets_of_a_killed_kubelet(root):
    directories = Directories(root)
    directories.prepare()
    where = directories.pod_resources_socket.parent
    with contextlib.ExitStack() as stack:
        for name in ("kubelet.sock", ".0123456789a", "mine.sock", ".feedfeedfee"):
            left = stack.enter_context(socket.socket(socket.AF_UNIX))
            left.bind(str(where / name))
            if name == ".feedfeedfee":
                left.listen()  # belongs to a kubelet that is starting
        (where / ".abcdef01234").touch()
        directories.prepare()
    assert {entry.name for entry in where.iterdir()} == {
        "mine.sock",
        ".feedfeedfee",
        ".abcdef01234",
    }


def test_prepare_keeps_sockets_in_plugins_registry(root):
    directories = Directories(root)
    directories.plugins_registry_dir.mkdir()
    (directories.plugins_registry_dir / "plugin.sock").touch()
    directories.prepare()
    assert (directories.plugins_registry_dir / "plugin.sock").exists()


def test_relative_root_is_rejected():
    with pytest.raises(StartError) as error:
        Directories(Path("here")).prepare()
    assert str(error.value) == (
        "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    )
    assert not Path("here").exists()


def test_root_too_long_for_sockets_is_rejected(root):
    with pytest.raises(StartError, match="bytes, the kernel allows 107: use a shorter directory"):
        Directories(root / ("x" * 100)).prepare()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["plugin_socket", "pod_resources_socket"])
def test_directory_of_a_running_kubelet_is_rejected(root, name):
    directories = Directories(root)
    directories.plugin_dir.mkdir()
    directories.pod_resources_socket.parent.mkdir()
    (directories.plugin_dir / "plugin.sock").touch()
    path = getattr(directories, name)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen()
        with pytest.raises(StartError) as error:
            directories.prepare()
        assert str(error.value) == (
            f"another kubelet serves {path}: stop it or choose another directory"
        )
        assert path.is_socket()
    # Nothing of the other kubelet is removed.
    assert (directories.plugin_dir / "plugin.sock").exists()


def test_stale_kubelet_socket_is_removed(root):
    directories = Directories(root)
    directories.plugin_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(directories.plugin_socket))
    directories.prepare()
    assert not directories.plugin_socket.exists()


@pytest.mark.parametrize("name", ["device-plugins", "plugins_registry", "pod-resources"])
def test_file_instead_of_a_subdirectory_is_rejected(root, name):
    (root / name).touch()
    with pytest.raises(StartError, match=name) as error:
        Directories(root).prepare()
    assert "\n" not in str(error.value)
    assert (root / name).is_file()


def test_directory_instead_of_a_socket_is_rejected(root):
    directories = Directories(root)
    directories.plugin_socket.mkdir(parents=True)
    with pytest.raises(StartError, match="is not a socket"):
        directories.prepare()


def test_unwritable_directory_is_rejected(root, monkeypatch):
    # Permissions do not apply to root, which may run this test.
    monkeypatch.setattr(os, "access", lambda path, how, *, dir_fd: False)
    with pytest.raises(
        StartError, match=f"^cannot write in directory {root}: choose another directory$"
    ):
        Directories(root).prepare()


def test_start_removes_temporary_file_of_a_killed_writer(root):
    plugin_dir = Directories(root).plugin_dir
    plugin_dir.mkdir(parents=True)
    left = plugin_dir / f".{CHECKPOINT_NAME}.tmp-1-2"
    left.write_text("half")
    with MockKubelet(root):
        assert not left.exists()


def test_start_reports_why_pod_resources_cannot_be_served(root):
    with MockKubelet(root):
        pass
    socket_path = Directories(root).pod_resources_socket
    socket_path.mkdir()
    with pytest.raises(StartError, match=rf"^{socket_path}"):
        MockKubelet(root).start()
