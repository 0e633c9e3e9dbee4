"""The view of a running kubelet with a plugin on a socket."""

from __future__ import annotations

from devicemanager.observe.view import KubeletView, Stream
from devicemanager.testing import pod_manifest


def test_plugin_of_real_kubelet_has_stream_and_calls(mock_kubelet, simulated_plugin):
    view = KubeletView(mock_kubelet)
    simulated_plugin("vendor.com/gpu", 2)
    mock_kubelet.admit(pod_manifest("train", {"vendor.com/gpu": 1}))

    view = view.refresh()

    (plugin,) = view.plugins
    assert (plugin.resource, plugin.stream, plugin.lists) == ("vendor.com/gpu", Stream.SERVING, 1)
    assert plugin.calls[-1].rpc == "Allocate"
    assert plugin.calls[-1].code == "OK"
    assert plugin.in_progress == ()
    assert view.events[0].kind == "started"
    assert view.kubelet_version == mock_kubelet.settings.kubelet_version
