"""Choice of a name for a socket, and reasons why a directory cannot have one."""

import os
import socket

import pytest

from checkpoint import CHECKPOINT_NAME
from devicemanager.plugin.common.sockets import claim, directory_problem, may_be_socket
from podresources.sockets import is_alive


def test_claim_replaces_only_stale_sockets(directory):
    listeners = []

    def bound(name, *, alive=True):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / name))
        listener.listen()
        if alive:
            listeners.append(listener)
        else:
            listener.close()
        return directory / name

    (directory / "directory").mkdir()
    (directory / "file").write_text("kept")
    assert is_alive(bound("living")) and not is_alive(bound("dead", alive=False))
    names = ["directory", "file", "living", "dead", "free"]
    try:
        assert claim(bound(".1"), iter(names)).name == "dead"
        assert claim(bound(".2"), iter(names)).name == "free"
        assert is_alive(directory / "dead") and is_alive(directory / "free")
        assert sorted(entry.name for entry in directory.iterdir()) == sorted(names)
        assert (directory / "file").read_text() == "kept"
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kubelet.sock", True),
        ("vendor.com_gpu", True),
        (CHECKPOINT_NAME, False),
        (f".{CHECKPOINT_NAME}.tmp-1-2", False),
        (".123456", False),  # a temporary file of the kubelet
        (".chosen", True),
        ("", True),  # the directory itself
    ],
)
def test_may_be_socket_ignores_the_checkpoint(name, expected):
    assert may_be_socket(name, ".chosen") is expected


def test_claim_uses_a_name_that_became_free(directory, monkeypatch):
    """The other socket was removed after the link failed."""

    def fail(source, target):
        raise FileExistsError

    monkeypatch.setattr(os, "link", fail)
    (directory / "file").write_text("kept")
    (directory / ".1").touch()
    found = claim(directory / ".1", iter(["file", "removed"]))
    assert found == directory / "removed"
    assert sorted(entry.name for entry in directory.iterdir()) == ["file", "removed"]


def test_problems_of_a_directory(directory, monkeypatch):
    assert directory_problem(directory) is None
    assert directory_problem(directory / "missing") is None
    (directory / "file").touch()
    assert directory_problem(directory / "file") == "is not a directory"
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    assert directory_problem(directory) == "cannot be written to by this user"
    assert asked == [(directory, os.W_OK | os.X_OK)]

    def forbid(path):
        raise PermissionError

    monkeypatch.setattr(type(directory), "exists", forbid)
    assert directory_problem(directory) == "cannot be reached by this user"
