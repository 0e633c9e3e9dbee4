"""The error messages for common mistakes in a first test."""

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


def test_settings_as_root_is_a_type_error():
    with pytest.raises(
        TypeError,
        match=r"^invalid root: settings were given as root: use MockKubelet\(settings=…\)$",
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
def test_arguments_of_a_wrong_type_are_type_errors(arguments, text):
    with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
        MockKubelet(**arguments)


@pytest.mark.parametrize("name", ["train", "ml/train"])
@pytest.mark.parametrize(
    "use",
    [
        lambda kubelet, uid: kubelet.devices(uid),
        lambda kubelet, uid: kubelet.allocated_resources_status(uid),
        lambda kubelet, uid: kubelet.terminate(uid),
        lambda kubelet, uid: kubelet.start_container(uid, "main"),
    ],
)
def test_pod_name_as_uid_is_an_error(mock_kubelet, use, name):
    with pytest.raises(RequestError, match=f"^no pod has the UID '{name}'"):
        use(mock_kubelet, name)
    train = mock_kubelet.admit(pod_manifest("train", namespace="ml"))
    with pytest.raises(RequestError) as caught:
        use(mock_kubelet, name)
    assert str(caught.value) == f"{name} is the name of a pod: use its UID {train.uid}"
    use(mock_kubelet, train.uid)


@pytest.mark.parametrize(
    "use",
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
def test_admission_as_uid_is_an_error(mock_kubelet, use):
    admission = mock_kubelet.admit(pod_manifest("train"))
    with pytest.raises(RequestError) as caught:
        use(mock_kubelet, admission)
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
def test_exit_code_that_is_not_a_number_is_an_error(mock_kubelet, end):
    uid = mock_kubelet.admit({**pod_manifest("train"), "spec": NEVER}).uid
    with pytest.raises(RequestError, match=r"^invalid exit code '1': expected an integer$"):
        end(mock_kubelet, uid)
    assert mock_kubelet.finish(uid) == "Succeeded"


def test_pod_without_devices_has_none(mock_kubelet):
    assert mock_kubelet.devices(mock_kubelet.admit(pod_manifest("plain")).uid) == {}


def test_wait_reports_that_no_plugin_has_registered(mock_kubelet):
    with pytest.raises(WaitTimeout) as caught:
        mock_kubelet.wait_for_resource(GPU, timeout=0)
    assert f"; no plugin has registered the resource on {mock_kubelet.plugin_socket}; " in str(
        caught.value
    )


def test_wait_reports_that_the_plugin_did_not_register_again(make_mock_kubelet, simulated_plugin):
    kubelet = make_mock_kubelet()
    plugin = simulated_plugin(GPU, kubelet=kubelet)
    plugin.stop()
    kubelet.wait_for_resource(GPU, 0)
    with pytest.raises(
        WaitTimeout,
        match=r"^waited 0 s for any allocatable devices of vendor\.com/gpu; "
        r"its plugin has disconnected; ",
    ):
        kubelet.wait_for_resource(GPU, timeout=0)
    kubelet.restart()
    with pytest.raises(
        WaitTimeout,
        match=r"^waited 0 s for any allocatable devices of vendor\.com/gpu; "
        r"its plugin has not registered on \S+ since the rest",
    ):
        kubelet.wait_for_resource(GPU, timeout=0)


def test_unknown_resource_does_not_have_count_0(mock_kubelet):
    with pytest.raises(
        WaitTimeout, match=rf"^waited 0 s for 0 allocatable devices of {GPU}; no plugin has reg"
    ):
        mock_kubelet.wait_for_resource(GPU, 0, timeout=0)


def test_removed_resource_has_count_0(make_mock_kubelet, simulated_plugin):
    clock = ManualClock()
    kubelet = make_mock_kubelet(clock=clock)
    simulated_plugin(GPU, kubelet=kubelet).stop()
    kubelet.wait_for_resource(GPU, 0)
    clock.advance(301)
    assert kubelet.capacity() == {}
    kubelet.wait_for_resource(GPU, 0, timeout=0)


def test_wait_for_event_does_not_return_an_old_one(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    with pytest.raises(WaitTimeout, match=r"^waited 0 s for the event registered of vendor"):
        mock_kubelet.wait_for_event("registered", resource=GPU, timeout=0)
    before = mock_kubelet.events.latest
    simulated_plugin("vendor.com/nic", 1)
    event = mock_kubelet.wait_for_event(EventKind.REGISTERED, after=before)
    assert event.resource == "vendor.com/nic"
    assert mock_kubelet.wait_for_event("registered", after=0).resource == GPU


def test_unknown_event_is_an_error(mock_kubelet):
    with pytest.raises(RequestError, match=r"^unknown event 'gone': use one of started, "):
        mock_kubelet.wait_for_event("gone")
    with pytest.raises(RequestError, match=r"^unknown event 'gone': use one of started, "):
        mock_kubelet.events.recent("gone")
    assert mock_kubelet.events.recent("started") == mock_kubelet.events.recent(EventKind.STARTED)


def test_escape_sequences_of_a_plugin_are_not_printed(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1, device_id_prefix="\x1b[2J")
    assert mock_kubelet.admit(pod_manifest("a", {GPU: 1})).admitted
    with pytest.raises(WaitTimeout) as caught:
        mock_kubelet.wait_for(lambda: False, timeout=0)
    assert r"\x1b[2J" in str(caught.value) and "\x1b" not in str(caught.value)


def test_wait_reports_no_problem_of_a_registered_plugin(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 2)
    with pytest.raises(
        WaitTimeout, match=rf"^waited 0 s for 3 allocatable devices of {GPU}; what did happen:"
    ):
        mock_kubelet.wait_for_resource(GPU, 3, timeout=0)


@pytest.mark.parametrize("count", ["2", -1, 1.5])
def test_wait_for_an_invalid_count_is_an_error(mock_kubelet, plugin_process, count):
    said = f"^invalid number of devices {count!r}: expected an integer of at least 0, or None$"
    with pytest.raises(RequestError, match="^" + said):
        mock_kubelet.wait_for_resource(GPU, count, timeout=600)
    with pytest.raises(RequestError, match="^" + said):
        plugin_process(["sleep", "600"], GPU, count, timeout=600)


@pytest.mark.parametrize("name", ["gpu", 5])
def test_plugin_process_with_an_invalid_resource_is_an_error(plugin_process, name):
    with pytest.raises(
        RequestError, match=f"^invalid resource {name!r}: expected a domain and a name"
    ):
        plugin_process(["sleep", "600"], name, timeout=600)


def test_callback_that_is_not_callable_is_a_type_error(mock_kubelet):
    with pytest.raises(TypeError, match=r"^invalid callback None: expected a callable"):
        mock_kubelet.events.subscribe(None)


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "vendor.com/"])
def test_wait_for_an_invalid_resource_is_an_error(mock_kubelet, name):
    with pytest.raises(RequestError, match=f"^invalid resource '{name}'"):
        mock_kubelet.wait_for_resource(name, timeout=600)


def test_containers_of_a_rejected_pod_raise_the_reason(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1)
    rejected = mock_kubelet.admit(pod_manifest("greedy", {GPU: 2}))
    assert dict(rejected.containers) == {}
    wanted = r"no container main, because pod default/greedy was rejected: Unexpected.*: 2, "
    with pytest.raises(KeyError, match=wanted):
        _ = rejected.containers["main"]
    with pytest.raises(Rejected):
        rejected.raise_for_rejection()


def test_health_events_name_the_pod_of_a_device(mock_kubelet, simulated_plugin):
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


def test_kubelet_that_is_not_stopped_leaves_no_directory():
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


def test_failing_import_raises_its_own_error(monkeypatch):
    # A name is cached after its first use, which can have been in another test.
    monkeypatch.delitem(vars(devicemanager), "Admission", raising=False)
    monkeypatch.setitem(sys.modules, "devicemanager.kubelet.pods.admission", None)
    with pytest.raises(ImportError, match=r"^import of devicemanager\.kubelet\.pods\.admission"):
        _ = devicemanager.Admission
