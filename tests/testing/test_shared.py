"""Kubelets that tests share: what a reset keeps, and marks for their settings."""

import re

import pytest

from devicemanager import ManualClock, Settings
from devicemanager.claims.simulated import SimulatedHardware, publish_hardware
from devicemanager.events.stream import EventKind
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


@pytest.mark.parametrize(("count", "hidden"), [(0, 0), (50, 0), (51, 1), (60, 10)])
def test_report_has_the_latest_events_of_each_kubelet(make_mock_kubelet, count, hidden):
    clock = ManualClock(1000.0)
    make_mock_kubelet(start=False)  # no event
    busy = make_mock_kubelet(clock=clock, start=False)
    busy.events.publish(EventKind.STARTED, "before")
    for number in range(count):
        clock.advance(0.5)
        kind = EventKind.CONFLICT if number % 2 else EventKind.FAULT
        busy.events.publish(kind, f"event {number}")
    lines = make_mock_kubelet.report(after=1).splitlines()
    if not count:
        assert lines == []
        return
    events = "event" if hidden == 1 else "events"
    note = [f"  ({hidden} earlier {events} not shown)"] if hidden else []
    assert lines[: 1 + len(note)] == [f"kubelet in {busy.root}", *note]
    shown = lines[1 + len(note) :]
    assert len(shown) == min(count, 50)
    # The times begin at the first event, also if it is not shown.
    assert shown[0].startswith(f"{hidden / 2:9.3f} s ")
    assert shown[-1].endswith(f"event {count - 1}")
    assert sum(" s ! conflict: " in line for line in shown) == min(count, 50) // 2


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
