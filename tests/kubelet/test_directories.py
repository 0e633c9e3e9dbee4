"""The kubelet's directories: made, checked, and cleared of everything but the checkpoint."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from checkpoint import CHECKPOINT_NAME
from devicemanager.core.errors import StartError
from devicemanager.kubelet.directories import Directories


@pytest.fixture
def root():
    """Short enough for sockets."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_paths():
    directories = Directories(Path("/r"))
    assert directories.plugin_socket == Path("/r/device-plugins/kubelet.sock")
    assert directories.pod_resources_socket == Path("/r/pod-resources/kubelet.sock")
    assert directories.plugins_registry_dir == Path("/r/plugins_registry")
    assert directories.checkpoint_path == Path("/r/device-plugins/kubelet_internal_checkpoint")


def test_directories_are_made(root):
    directories = Directories(root / "new")
    directories.prepare()
    made = [
        directories.plugin_dir,
        directories.plugins_registry_dir,
        directories.pod_resources_socket.parent,
    ]
    assert [mode(each) for each in made] == [0o750] * 3
    directories.prepare()


def test_everything_but_directories_and_checkpoints_goes(root):
    directories = Directories(root)
    directories.plugin_dir.mkdir()
    (directories.plugin_dir / "directory").mkdir()
    (directories.plugin_dir / "directory" / "inside").touch()
    (directories.plugin_dir / "link-to-directory").symlink_to("directory")
    kept = {"directory", "link-to-directory", CHECKPOINT_NAME}
    (directories.plugin_dir / CHECKPOINT_NAME).write_bytes(b"kept")
    (directories.plugin_dir / "file").touch()
    (directories.plugin_dir / ".hidden").touch()
    (directories.plugin_dir / "dangling").symlink_to("nowhere")
    (directories.plugin_dir / "link-to-file").symlink_to(CHECKPOINT_NAME)
    os.mkfifo(directories.plugin_dir / "fifo")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(directories.plugin_dir / "plugin.sock"))
        served.listen()
        directories.prepare()
    assert {entry.name for entry in directories.plugin_dir.iterdir()} == kept
    assert directories.checkpoint_path.read_bytes() == b"kept"
    assert (directories.plugin_dir / "directory" / "inside").exists()


def test_what_waits_to_be_found_stays(root):
    directories = Directories(root)
    directories.plugins_registry_dir.mkdir()
    (directories.plugins_registry_dir / "plugin.sock").touch()
    directories.prepare()
    assert (directories.plugins_registry_dir / "plugin.sock").exists()


def test_a_relative_root():
    with pytest.raises(StartError) as error:
        Directories(Path("here")).prepare()
    assert str(error.value) == (
        "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    )
    assert not Path("here").exists()


def test_a_root_too_long_for_sockets(root):
    with pytest.raises(StartError, match="bytes, the kernel allows 107: use a shorter directory"):
        Directories(root / ("x" * 100)).prepare()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["plugin_socket", "pod_resources_socket"])
def test_another_kubelet(root, name):
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
    # Nothing of the other one's is touched.
    assert (directories.plugin_dir / "plugin.sock").exists()


def test_a_socket_that_nobody_serves_is_in_nobodys_way(root):
    directories = Directories(root)
    directories.plugin_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(directories.plugin_socket))
    directories.prepare()
    assert not directories.plugin_socket.exists()


@pytest.mark.parametrize("name", ["device-plugins", "plugins_registry", "pod-resources"])
def test_a_file_where_a_directory_belongs(root, name):
    (root / name).touch()
    with pytest.raises(StartError, match=name) as error:
        Directories(root).prepare()
    assert "\n" not in str(error.value)
    assert (root / name).is_file()


def test_a_directory_where_a_socket_belongs(root):
    directories = Directories(root)
    directories.plugin_socket.mkdir(parents=True)
    with pytest.raises(StartError, match="is not a socket"):
        directories.prepare()


def test_an_unwritable_directory(root, monkeypatch):
    # Permissions do not stop root, who may be running this.
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "device-plugins")
    with pytest.raises(StartError, match=r"cannot write in directory .*device-plugins: choose"):
        Directories(root).prepare()
