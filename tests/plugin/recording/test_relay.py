"""One plugin's place, without a kubelet: waiting for the plugin, and ending that."""

from __future__ import annotations

import threading
from pathlib import Path

from devicemanager.plugin.recording.relay import Relay
from tests.hostile import hostile

SECONDS = 20.0


def relay(directory: Path) -> Relay:
    return Relay(directory / "plugin.sock", directory / "front.sock", lambda rpc, request: None)


def test_one_that_is_closed_while_it_waits_ends_in_silence(directory: Path) -> None:
    """A thread that fails, as gRPC's own does on a closed channel ("Cannot monitor channel
    state"), fails the test."""
    before = set(threading.enumerate())
    waiting = relay(directory)
    waiting.open()
    waiting.close()
    assert waiting.opened.wait(SECONDS)
    for thread in set(threading.enumerate()) - before:
        thread.join(SECONDS)
    assert not waiting.front.exists()


def test_the_front_appears_once_the_plugin_is_served(directory: Path) -> None:
    opened = relay(directory)
    with hostile.raw_socket(opened.plugin):  # takes connections, and says nothing
        opened.open()
        assert not opened.opened.wait(0.1)
        assert not opened.front.exists()
    opened.plugin.unlink()
    with hostile.RawPlugin(opened.plugin):
        assert opened.opened.wait(SECONDS)
        assert opened.error == ""
        assert opened.front.is_socket()
        opened.close()
    assert not opened.front.exists()
