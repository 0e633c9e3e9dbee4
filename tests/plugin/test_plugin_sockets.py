"""Socket files: whose they are, and taking a name."""

import os
import socket

from devicemanager.plugin.sockets import FileIdentity, claim, is_alive, remove_if_ours


def test_a_file_made_later_is_another_one_even_with_the_same_inode(tmp_path):
    path = tmp_path / "kubelet.sock"
    assert FileIdentity.of(path) is None
    path.touch()
    first = FileIdentity.of(path)
    path.chmod(0o600)
    assert FileIdentity.of(path) == first
    # What a file system does that gives the number out again at once.
    os.utime(path, ns=(1, 1))
    assert FileIdentity.of(path) != first
    assert FileIdentity.of(path / "below") is None


def test_only_what_is_ours_is_removed(tmp_path):
    path = tmp_path / "socket"
    path.touch()
    identity = FileIdentity.of(path)
    os.utime(path, ns=(1, 1))
    remove_if_ours(path, identity)
    assert path.exists()
    remove_if_ours(path, FileIdentity.of(path))
    remove_if_ours(path, identity)
    assert not path.exists()


def test_a_name_is_taken_unless_somebody_lives_there(directory):
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
