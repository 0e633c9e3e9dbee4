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
from devicemanager.layout import Layout, StartError


@pytest.fixture
def root():
    """Short enough for sockets."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_paths():
    layout = Layout(Path("/r"))
    assert layout.plugin_socket == Path("/r/device-plugins/kubelet.sock")
    assert layout.pod_resources_socket == Path("/r/pod-resources/kubelet.sock")
    assert layout.plugins_registry_dir == Path("/r/plugins_registry")
    assert layout.checkpoint_path == Path("/r/device-plugins/kubelet_internal_checkpoint")


def test_directories_are_made(root):
    layout = Layout(root / "new")
    layout.prepare()
    directories = [
        layout.plugin_dir,
        layout.plugins_registry_dir,
        layout.pod_resources_socket.parent,
    ]
    assert [mode(each) for each in directories] == [0o750] * 3
    layout.prepare()


def test_everything_but_directories_and_checkpoints_goes(root):
    layout = Layout(root)
    layout.plugin_dir.mkdir()
    (layout.plugin_dir / "directory").mkdir()
    (layout.plugin_dir / "directory" / "inside").touch()
    (layout.plugin_dir / "link-to-directory").symlink_to("directory")
    kept = {"directory", "link-to-directory", CHECKPOINT_NAME}
    (layout.plugin_dir / CHECKPOINT_NAME).write_bytes(b"kept")
    (layout.plugin_dir / "file").touch()
    (layout.plugin_dir / ".hidden").touch()
    (layout.plugin_dir / "dangling").symlink_to("nowhere")
    (layout.plugin_dir / "link-to-file").symlink_to(CHECKPOINT_NAME)
    os.mkfifo(layout.plugin_dir / "fifo")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(layout.plugin_dir / "plugin.sock"))
        served.listen()
        layout.prepare()
    assert {entry.name for entry in layout.plugin_dir.iterdir()} == kept
    assert layout.checkpoint_path.read_bytes() == b"kept"
    assert (layout.plugin_dir / "directory" / "inside").exists()


def test_what_waits_to_be_found_stays(root):
    layout = Layout(root)
    layout.plugins_registry_dir.mkdir()
    (layout.plugins_registry_dir / "plugin.sock").touch()
    layout.prepare()
    assert (layout.plugins_registry_dir / "plugin.sock").exists()


def test_a_relative_root():
    with pytest.raises(StartError) as error:
        Layout(Path("here")).prepare()
    assert str(error.value) == (
        "bad socketPath, must be an absolute path: here/device-plugins/kubelet.sock"
    )
    assert not Path("here").exists()


def test_a_root_too_long_for_sockets(root):
    with pytest.raises(StartError, match="bytes, the kernel allows 107: use a shorter directory"):
        Layout(root / ("x" * 100)).prepare()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["plugin_socket", "pod_resources_socket"])
def test_another_kubelet(root, name):
    layout = Layout(root)
    layout.plugin_dir.mkdir()
    layout.pod_resources_socket.parent.mkdir()
    (layout.plugin_dir / "plugin.sock").touch()
    path = getattr(layout, name)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen()
        with pytest.raises(StartError) as error:
            layout.prepare()
        assert str(error.value) == (
            f"another kubelet serves {path}: stop it or choose another directory"
        )
        assert path.is_socket()
    # Nothing of the other one's is touched.
    assert (layout.plugin_dir / "plugin.sock").exists()


def test_a_socket_that_nobody_serves_is_in_nobodys_way(root):
    layout = Layout(root)
    layout.plugin_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(layout.plugin_socket))
    layout.prepare()
    assert not layout.plugin_socket.exists()


@pytest.mark.parametrize("name", ["device-plugins", "plugins_registry", "pod-resources"])
def test_a_file_where_a_directory_belongs(root, name):
    (root / name).touch()
    with pytest.raises(StartError, match=name) as error:
        Layout(root).prepare()
    assert "\n" not in str(error.value)
    assert (root / name).is_file()


def test_a_directory_where_a_socket_belongs(root):
    layout = Layout(root)
    layout.plugin_socket.mkdir(parents=True)
    with pytest.raises(StartError, match="is not a socket"):
        layout.prepare()


def test_an_unwritable_directory(root, monkeypatch):
    # Permissions do not stop root, who may be running this.
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "device-plugins")
    with pytest.raises(StartError, match=r"cannot write in directory .*device-plugins: choose"):
        Layout(root).prepare()
