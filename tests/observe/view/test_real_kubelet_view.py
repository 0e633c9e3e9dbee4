"""A picture of a kubelet that serves, with a plugin on a socket."""

from __future__ import annotations

from devicemanager.observe.view import KubeletView, Stream
from devicemanager.testing import pod_manifest


def test_a_plugin_shows_its_stream_and_its_latest_calls(mock_kubelet, simulated_plugin):
    view = KubeletView(mock_kubelet)
    simulated_plugin("vendor.com/gpu", 2)
    mock_kubelet.admit(pod_manifest("train", {"vendor.com/gpu": 1}))

    picture = view.refresh()

    (plugin,) = picture.plugins
    assert (plugin.resource, plugin.stream, plugin.lists) == ("vendor.com/gpu", Stream.SERVING, 1)
    assert plugin.calls[-1].rpc == "Allocate"
    assert plugin.calls[-1].code == "OK"
    assert plugin.in_progress == ()
    assert picture.events[0].kind == "started"
    assert picture.kubelet_version == mock_kubelet.settings.kubelet_version
