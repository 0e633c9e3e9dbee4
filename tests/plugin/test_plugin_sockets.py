"""Taking a name for a socket."""

import socket

from devicemanager.plugin.sockets import claim
from podresources.sockets import is_alive


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
