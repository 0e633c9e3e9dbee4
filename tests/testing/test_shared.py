"""Kubelets that tests share: what a reset keeps, and marks for their settings."""

import re

import pytest

from devicemanager import Settings
from devicemanager.claims.simulated import SimulatedHardware, publish_hardware
from devicemanager.testing import pod_manifest
from devicemanager.testing.factories import with_marks

GPU = "vendor.com/gpu"


def test_reset_keeps_only_the_plugins(mock_kubelet, simulated_plugin):
    plugin = simulated_plugin(GPU, 2)
    publish_hardware(mock_kubelet.claims, SimulatedHardware(1, 1, 0))
    mock_kubelet.admit(pod_manifest("a", {GPU: 2}))
    mock_kubelet.admit(pod_manifest("rejected", {GPU: 1}))
    mock_kubelet.faults.set("fail-call")
    mark = mock_kubelet.mark()
    mock_kubelet.reset()
    assert mock_kubelet.pods() == {} and mock_kubelet.faults.list() == ()
    assert mock_kubelet.claims.pools() == () and mock_kubelet.claims.classes() == ()
    assert [each.pod for each in mock_kubelet.inventory()] == [None, None]
    assert mock_kubelet.admit(pod_manifest("b", {GPU: 2})).admitted
    assert len(mock_kubelet.calls(GPU, rpc="Register")) == 1
    assert not mock_kubelet.calls(GPU, rpc="Register", since=mark)
    mock_kubelet.stop()
    mock_kubelet.reset()
    assert mock_kubelet.is_serving and mock_kubelet.pods() == {}
    assert plugin.wait_registered()


def test_reset_without_claims_loads_no_claim_manager(mock_kubelet, monkeypatch):
    monkeypatch.setattr("devicemanager.claims.pod_claims.PodClaims", pytest.fail)
    mock_kubelet.reset()


def test_closest_mark_takes_precedence():
    marks = [((), {"shuffle_seed": 1}), ((), {"shuffle_seed": 2, "strict": True})]
    settings = with_marks(Settings(durability="process"), marks)
    assert (settings.shuffle_seed, settings.strict) == (1, True)
    assert settings.durability == "process"


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (((), {"colour": "red"}), "mark mock_kubelet: Settings has no field 'colour'"),
        (
            (("1.30",), {}),
            "mark mock_kubelet: expected fields of Settings by name, "
            "such as strict=True, not '1.30'",
        ),
    ],
)
def test_invalid_mark_is_rejected(mark, text):
    with pytest.raises(TypeError, match="^" + re.escape(text)):
        with_marks(Settings(), [mark])
