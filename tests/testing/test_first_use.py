"""What somebody who writes a first test is told when something is amiss."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import devicemanager
from devicemanager import (
    EventKind,
    ManualClock,
    MockKubelet,
    Rejected,
    RequestError,
    Settings,
    WaitTimeout,
)
from devicemanager.testing import pod_manifest

GPU = "vendor.com/gpu"
NEVER = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}


def test_settings_in_the_place_of_the_root_are_noticed():
    with pytest.raises(
        TypeError, match=r"^settings is a keyword argument: use MockKubelet\(settings=…\)$"
    ):
        MockKubelet(Settings())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"settings": {"strict": True}}, "invalid settings {'strict': True}: expected Settings(…)"),
        ({"root": 3}, "invalid root 3: expected the path of a directory"),
        ({"clock": 3}, "invalid clock 3: expected a clock, such as ManualClock()"),
        ({"clock": ManualClock}, "invalid clock <class "),
    ],
)
def test_arguments_of_another_type_are_noticed(arguments, text):
    with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
        MockKubelet(**arguments)


@pytest.mark.parametrize("name", ["train", "ml/train"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda kubelet, uid: kubelet.devices(uid),
        lambda kubelet, uid: kubelet.allocated_resources_status(uid),
        lambda kubelet, uid: kubelet.terminate(uid),
        lambda kubelet, uid: kubelet.start_container(uid, "main"),
    ],
)
def test_a_name_in_the_place_of_a_uid_is_noticed(mock_kubelet, ask, name):
    with pytest.raises(RequestError, match=f"^no pod has the UID '{name}'"):
        ask(mock_kubelet, name)
    train = mock_kubelet.admit(pod_manifest("train", namespace="ml"))
    with pytest.raises(RequestError) as caught:
        ask(mock_kubelet, name)
    assert str(caught.value) == f"{name} is a pod's name, its UID is {train.uid}"
    ask(mock_kubelet, train.uid)


@pytest.mark.parametrize(
    "ask",
    [
        lambda kubelet, pod: kubelet.devices(pod),
        lambda kubelet, pod: kubelet.terminate(pod),
        lambda kubelet, pod: kubelet.delete(pod),
        lambda kubelet, pod: kubelet.finish(pod),
        lambda kubelet, pod: kubelet.start_pod(pod),
        lambda kubelet, pod: kubelet.stop_pod(pod),
        lambda kubelet, pod: kubelet.exit_container(pod, "main"),
        lambda kubelet, pod: kubelet.container_statuses(pod),
        lambda kubelet, pod: kubelet.pod_status(pod),
        lambda kubelet, pod: kubelet.has_pod(pod),
        lambda kubelet, pod: kubelet.wait_for_event("admitted", pod=pod, timeout=600),
    ],
)
def test_an_admission_in_the_place_of_a_uid_is_noticed(mock_kubelet, ask):
    admission = mock_kubelet.admit(pod_manifest("train"))
    with pytest.raises(RequestError) as caught:
        ask(mock_kubelet, admission)
    said = "invalid pod UID: expected a string such as admission.uid, not Admission"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "end",
    [
        lambda kubelet, uid: kubelet.exit_container(uid, "main", "1"),
        lambda kubelet, uid: kubelet.finish(uid, "1"),
        lambda kubelet, uid: kubelet.finish(uid, {"main": "1"}),
        lambda kubelet, uid: kubelet.stop_pod(uid, "1"),
    ],
)
def test_an_exit_code_that_is_no_number_is_noticed(mock_kubelet, end):
    uid = mock_kubelet.admit({**pod_manifest("train"), "spec": NEVER}).uid
    with pytest.raises(RequestError, match=r"^invalid exit code '1': expected an integer$"):
        end(mock_kubelet, uid)
    assert mock_kubelet.finish(uid) == "Succeeded"


def test_a_pod_without_devices_has_none(mock_kubelet):
    assert mock_kubelet.devices(mock_kubelet.admit(pod_manifest("plain")).uid) == {}


def test_a_wait_says_that_no_plugin_came(mock_kubelet):
    with pytest.raises(WaitTimeout) as caught:
        mock_kubelet.wait_for_resource(GPU, timeout=0)
    assert f"; no plugin has registered it on {mock_kubelet.plugin_socket}; " in str(caught.value)


def test_a_wait_says_that_the_plugin_did_not_come_back(make_mock_kubelet, simulated_plugin):
    kubelet = make_mock_kubelet()
    plugin = simulated_plugin(GPU, kubelet=kubelet)
    plugin.stop()
    kubelet.wait_for_resource(GPU, 0)
    with pytest.raises(WaitTimeout, match="; its plugin has disconnected; "):
        kubelet.wait_for_resource(GPU, timeout=0)
    kubelet.restart()
    with pytest.raises(WaitTimeout, match=r"; its plugin has not registered on \S+ since the rest"):
        kubelet.wait_for_resource(GPU, timeout=0)


def test_a_resource_that_never_was_has_no_count_not_even_0(mock_kubelet):
    with pytest.raises(WaitTimeout, match=f"0 allocatable devices of {GPU}; no plugin has reg"):
        mock_kubelet.wait_for_resource(GPU, 0, timeout=0)


def test_a_resource_that_was_removed_has_0(make_mock_kubelet, simulated_plugin):
    clock = ManualClock()
    kubelet = make_mock_kubelet(clock=clock)
    simulated_plugin(GPU, kubelet=kubelet).stop()
    kubelet.wait_for_resource(GPU, 0)
    clock.advance(301)
    assert kubelet.capacity() == {}
    kubelet.wait_for_resource(GPU, 0, timeout=0)


def test_a_wait_for_an_event_does_not_return_an_old_one(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    with pytest.raises(WaitTimeout, match="0 s for the event registered of vendor"):
        mock_kubelet.wait_for_event("registered", resource=GPU, timeout=0)
    before = mock_kubelet.events.latest
    simulated_plugin("vendor.com/nic", 1)
    event = mock_kubelet.wait_for_event(EventKind.REGISTERED, after=before)
    assert event.resource == "vendor.com/nic"
    assert mock_kubelet.wait_for_event("registered", after=0).resource == GPU


def test_an_event_that_there_is_not_is_noticed(mock_kubelet):
    with pytest.raises(RequestError, match=r"^unknown event 'gone': use one of started, "):
        mock_kubelet.wait_for_event("gone")
    with pytest.raises(RequestError, match=r"^unknown event 'gone': use one of started, "):
        mock_kubelet.events.recent("gone")
    assert mock_kubelet.events.recent("started") == mock_kubelet.events.recent(EventKind.STARTED)


def test_what_a_plugin_wrote_does_not_reach_the_terminal(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1, device_id_prefix="\x1b[2J")
    assert mock_kubelet.admit(pod_manifest("a", {GPU: 1})).admitted
    with pytest.raises(WaitTimeout) as caught:
        mock_kubelet.wait_for(lambda: False, timeout=0)
    assert r"\x1b[2J" in str(caught.value) and "\x1b" not in str(caught.value)


def test_a_wait_has_nothing_to_add_while_the_plugin_is_there(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    with pytest.raises(WaitTimeout, match=f"3 allocatable devices of {GPU}; what did happen:"):
        mock_kubelet.wait_for_resource(GPU, 3, timeout=0)


@pytest.mark.parametrize("count", ["2", -1, 1.5])
def test_a_count_that_cannot_be_is_not_waited_for(mock_kubelet, plugin_process, count):
    said = f"^invalid number of devices {count!r}: expected an integer from 0, or None$"
    with pytest.raises(RequestError, match=said):
        mock_kubelet.wait_for_resource(GPU, count, timeout=600)
    with pytest.raises(RequestError, match=said):
        plugin_process(["sleep", "600"], GPU, count, timeout=600)


@pytest.mark.parametrize("name", ["gpu", 5])
def test_a_plugin_is_not_waited_for_by_a_name_that_cannot_be(plugin_process, name):
    with pytest.raises(
        RequestError, match=f"^invalid resource {name!r}: expected a domain and a name"
    ):
        plugin_process(["sleep", "600"], name, timeout=600)


def test_what_cannot_be_called_is_no_callback(mock_kubelet):
    with pytest.raises(TypeError, match=r"^invalid callback None: expected a callable"):
        mock_kubelet.events.subscribe(None)


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "vendor.com/"])
def test_a_name_that_cannot_be_is_not_waited_for(mock_kubelet, name):
    with pytest.raises(RequestError, match=f"^invalid resource '{name}'"):
        mock_kubelet.wait_for_resource(name, timeout=600)


def test_a_look_into_a_rejected_pod_says_why_it_was_rejected(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1)
    rejected = mock_kubelet.admit(pod_manifest("greedy", {GPU: 2}))
    assert dict(rejected.containers) == {}
    with pytest.raises(KeyError, match=r"main: pod default/greedy was rejected: Unexpected.*: 2, "):
        _ = rejected.containers["main"]
    with pytest.raises(Rejected):
        rejected.raise_for_rejection()


def test_events_say_what_became_of_whose_device(mock_kubelet, simulated_plugin):
    plugin = simulated_plugin(GPU, 2)
    train = mock_kubelet.admit(pod_manifest("train", {GPU: 1}))

    def messages():
        return [each.message for each in mock_kubelet.events.recent(EventKind.DEVICE_HEALTH)]

    for health in ("Unhealthy", "Healthy"):
        plugin.set_health("gpu-mock-0", health)
        mock_kubelet.wait_for_resource(GPU, 1 + (health == "Healthy"))
    plugin.stop()
    mock_kubelet.wait_for(lambda: len(messages()) == 3)
    assert messages() == [
        f"{GPU} gpu-mock-0: now {state}, allocated to pod default/train"
        for state in ("Unhealthy", "Healthy", "Unhealthy: plugin disconnected")
    ]
    assert mock_kubelet.events.recent(EventKind.DEVICE_HEALTH)[0].pod == train.uid


def test_a_kubelet_that_nobody_stops_leaves_no_directory():
    code = "from devicemanager import MockKubelet; print(MockKubelet().start().root)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    root = done.stdout.strip()
    assert root.startswith("/tmp/dm-")
    assert not Path(root).exists()


def test_an_import_that_fails_otherwise_stays_what_it_is(monkeypatch):
    # Once loaded a name stays; another test may have done so.
    monkeypatch.delitem(vars(devicemanager), "Admission", raising=False)
    monkeypatch.setitem(sys.modules, "devicemanager.kubelet.pods.admission", None)
    with pytest.raises(ImportError, match=r"devicemanager\.kubelet\.pods\.admission"):
        _ = devicemanager.Admission
