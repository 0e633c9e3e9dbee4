"""The proxy of one plugin, without a kubelet: it waits for the plugin, and can be closed."""

from __future__ import annotations

import threading
from pathlib import Path

from devicemanager.plugin.recording.proxy import PluginProxy
from tests.hostile import hostile

TIMEOUT = 20.0


def proxy_in(directory: Path) -> PluginProxy:
    plugin, path = directory / "plugin.sock", directory / "proxy.sock"
    return PluginProxy(plugin, path, lambda rpc, request: None)


def test_proxy_can_be_closed_while_it_waits(directory: Path) -> None:
    """A failing thread would fail the test, such as gRPC's own on a closed channel."""
    before = set(threading.enumerate())
    proxy = proxy_in(directory)
    proxy.open()
    proxy.close()
    assert proxy.opened.wait(TIMEOUT)
    for thread in set(threading.enumerate()) - before:
        thread.join(TIMEOUT)
    assert not proxy.path.exists()


def test_proxy_appears_when_the_plugin_is_served(directory: Path) -> None:
    proxy = proxy_in(directory)
    with hostile.raw_socket(proxy.plugin):  # accepts connections and sends nothing
        proxy.open()
        assert not proxy.opened.wait(0.1)
        assert not proxy.path.exists()
    proxy.plugin.unlink()
    with hostile.RawPlugin(proxy.plugin):
        assert proxy.opened.wait(TIMEOUT)
        assert proxy.error == ""
        assert proxy.path.is_socket()
        proxy.close()
    assert not proxy.path.exists()
