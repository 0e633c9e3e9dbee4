"""The metrics of a kubelet, parsed by prometheus_client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from devicemanager import EventKind, MockKubelet, Settings
from devicemanager.core.printable import one_line
from devicemanager.events.calls.call import Direction
from devicemanager.observe.metrics import families, reader
from devicemanager.observe.metrics.exposition import text_of
from devicemanager.observe.metrics.kubelet import KubeletMetrics, resource_text
from devicemanager.observe.metrics.reader import Reader
from devicemanager.testing import pod_manifest
from podresources import PodResourcesClient
from tests.helpers import container, pod
from tests.node import GPU, Node, rows

TOPOLOGY = {
    f"kubelet_topology_manager_admission_{each}"
    for each in ("requests_total", "errors_total", "duration_ms")
}
REJECTIONS = "kubelet_admission_rejections_total"
ALIGNED = "kubelet_container_aligned_compute_resources_count"
NOT_ALIGNED = "kubelet_container_aligned_compute_resources_failure_count"


def samples(text):
    """Return the values by name and labels; the parser calls every counter ``..._total``."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def types(text):
    """Return the types in the text itself by name."""
    lines = [line.split() for line in text.decode().split("\n") if line.startswith("# TYPE ")]
    assert len(lines) == len({name for _, _, name, _ in lines})
    return {name: kind for _, _, name, kind in lines}


@pytest.fixture
def stopped(tmp_path):
    """Return a function that makes a stopped kubelet; tests publish its events themselves."""

    def make(**settings):
        return MockKubelet(tmp_path / "r", Settings(**settings))

    return make


def test_unsafe_characters_of_labels_are_escaped():
    family = CounterMetricFamily("x", "about x", labels=["name"])
    family.add_metric(["a\x1b[2J\rb\u202e"], 1)
    family.add_metric(["größe"], 2)
    lines = text_of(_Families([family])).decode().split("\n")
    assert r'x_total{name="a\\x1b[2J\\x0db\\u202e"} 1.0' in lines
    assert 'x_total{name="größe"} 2.0' in lines


class _Families:
    def __init__(self, families):
        self._families = families

    def collect(self):
        return self._families


def reject(kubelet, reason="TopologyAffinityError"):
    kubelet.events.publish(
        EventKind.REJECTED, "rejected", seconds=0.001, containers=0, reason=reason
    )


def register(kubelet, resource):
    call = kubelet.calls.recorder(resource, "p.sock").begin("Register", b"", Direction.TO_KUBELET)
    call.failed("Unknown", "no")


@pytest.fixture
def mock_kubelet_settings():
    return Settings(topology_policy="single-numa-node")


def test_metrics_count_registrations_admissions_and_restart(mock_kubelet, simulated_plugin):
    kubelet = mock_kubelet
    metrics = KubeletMetrics(kubelet)
    simulated_plugin(GPU, 4)
    kubelet.wait_for_resource(GPU, 4)
    kubelet.admit(pod_manifest("train", {GPU: 3}))
    kubelet.admit(pod_manifest("greedy", {GPU: 2}))
    done = pod_manifest("done", {}, uid="done")
    done["spec"]["restartPolicy"] = "Never"
    done["spec"]["containers"].append({"name": "two", "image": "i"})
    kubelet.admit(done)
    kubelet.finish("done")
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        client.list()
        client.list_v1alpha1()
    text = metrics.text()
    found, kinds = samples(text), types(text)
    gpu = ("resource_name", GPU)
    for name, labels, value in [
        ("kubelet_device_plugin_registration_total", [gpu], 1),
        ("kubelet_device_plugin_alloc_duration_seconds_count", [gpu], 1),
        ("kubelet_device_plugin_alloc_duration_seconds_bucket", [("le", "10"), gpu], 1),
        ("kubelet_topology_manager_admission_requests_total", [], 3),
        ("kubelet_topology_manager_admission_errors_total", [], 1),
        ("kubelet_topology_manager_admission_duration_ms_count", [], 3),
        (REJECTIONS, [("reason", "UnexpectedAdmissionError")], 1),
        (ALIGNED + "_total", [("boundary", "numa_node"), ("scope", "container")], 3),
        (ALIGNED + "_total", [("boundary", "numa_node"), ("scope", "pod")], 0),
        ("kubelet_pod_resources_endpoint_requests_total", [("server_api_version", "v1")], 1),
        ("kubelet_pod_resources_endpoint_requests_total", [("server_api_version", "v1alpha1")], 1),
        (
            "kubelet_pod_resources_endpoint_requests_list_total",
            [("server_api_version", "v1")],
            1,
        ),
        ("kubelet_node_name", [("node", "mock")], 1),
        ("kubelet_running_pods", [], 1),
        ("kubelet_running_containers", [("container_state", "running")], 1),
        ("kubelet_running_containers", [("container_state", "exited")], 2),
        ("devicemanager_devices_capacity", [gpu], 4),
        ("devicemanager_devices_allocatable", [gpu], 4),
        ("devicemanager_devices_held", [gpu], 3),
    ]:
        assert found[name, *labels] == value, name
    # Counters without the suffix _total have their own names in the TYPE lines.
    assert kinds[ALIGNED] == kinds["kubelet_pod_resources_endpoint_requests_list"] == "counter"
    assert kinds["kubelet_device_plugin_alloc_duration_seconds"] == "histogram"
    assert not [name for name in kinds if name.endswith(("_total_total", "_created"))]
    resources = samples(resource_text(kubelet))
    started = ("container", "main"), ("namespace", "default"), ("pod", "train")
    assert resources["container_start_time_seconds", *started] > 1.7e9
    assert resources["resource_scrape_error",] == 0

    kubelet.restart()
    kubelet.wait_for_resource(GPU, 4)
    again = samples(metrics.text())
    assert again["kubelet_device_plugin_registration_total", gpu] == 1
    assert ("kubelet_device_plugin_alloc_duration_seconds_count", gpu) not in again
    assert again["kubelet_topology_manager_admission_requests_total",] == 1  # admitted again
    metrics.close()


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.26", set()),
        ("1.27", TOPOLOGY),
        ("1.31", TOPOLOGY),
        ("1.32", TOPOLOGY | {REJECTIONS, ALIGNED}),
        ("1.33", TOPOLOGY | {REJECTIONS, ALIGNED, NOT_ALIGNED}),
        ("1.36", TOPOLOGY | {REJECTIONS, ALIGNED, NOT_ALIGNED}),
    ],
)
def test_m1_admission_metrics_by_version(stopped, version, names):
    kubelet = stopped(kubelet_version=version, topology_policy="single-numa-node")
    metrics = KubeletMetrics(kubelet)
    reject(kubelet)
    register(kubelet, GPU)
    found = set(types(metrics.text()))
    always = {"kubelet_device_plugin_registration_total"}
    always |= {"kubelet_node_name", "kubelet_running_pods", "kubelet_running_containers"}
    assert found - always == names


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.28", {"scrape_error"}),
        ("1.29", {"scrape_error", "resource_scrape_error"}),
        ("1.30", {"resource_scrape_error"}),
    ],
)
def test_scrape_error_metrics_by_version(stopped, version, names):
    assert set(types(resource_text(stopped(kubelet_version=version)))) == names


def test_policy_none_has_no_alignment_metrics(stopped):
    kubelet = stopped()
    metrics = KubeletMetrics(kubelet)
    reject(kubelet, "UnexpectedAdmissionError")
    found = samples(metrics.text())
    assert found["kubelet_topology_manager_admission_errors_total",] == 0
    assert ALIGNED not in types(metrics.text())


# -- reading ----------------------------------------------------------------------------


def test_reader_queues_events_until_read(stopped, monkeypatch):
    monkeypatch.setattr(reader, "_QUEUE_LIMIT", 3)
    kubelet, woken = stopped(), []
    reading = Reader(kubelet, lambda: woken.append(1))
    for _ in range(5):
        register(kubelet, GPU)
    assert len(woken) == 1  # not again before the next reading
    assert reading.read(lambda tally: dict(tally.registrations)) == {GPU: 5}
    for _ in range(3):
        register(kubelet, GPU)
    assert len(woken) == 2
    reading.close()
    register(kubelet, GPU)
    assert reading.read(lambda tally: tally.registrations[GPU]) == 8


def test_reader_ignores_other_calls_and_events(stopped):
    kubelet = stopped()
    reading = Reader(kubelet)
    for rpc in ("GetInfo", "ListAndWatch"):
        kubelet.calls.recorder(GPU, "p.sock").begin(rpc).answered(b"")
    kubelet.events.publish(EventKind.TERMINATED, "gone")
    tally = reading.read(lambda tally: tally)
    assert (tally.registrations, tally.allocations, tally.admissions.count) == ({}, {}, 0)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_admission_event_has_number_of_allocated_containers(scope):
    node = Node(topology_policy="single-numa-node", topology_scope=scope)
    node.plugin(rows("000"))
    seen = []
    node.events.subscribe(lambda event: seen.append(event))

    def containers():
        (event,) = (e for e in seen if e.kind in (EventKind.ADMITTED, EventKind.REJECTED))
        seen.clear()
        assert event.details["seconds"] >= 0
        return event.details["containers"], event.details.get("reason")

    node.admit(pod("fits", container("a", gpu=1), container("b", gpu=1)))
    assert containers() == (2, None)
    node.admit(pod("half", container("a", gpu=1), container("b", gpu=2)))
    assert containers()[0] == (1 if scope == "container" else 0)


# -- text -------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_any_text_is_one_label_value(first, second):
    registry = CollectorRegistry()

    class Source:
        def collect(self):
            family = CounterMetricFamily("a", first, labels=["text"])
            family.add_metric([first], 1)
            yield family
            bare = families.counter("b_count", second, [({"text": second}, 2)])
            yield bare
            yield families.counter("empty_total", second, [])

    registry.register(Source())
    text = text_of(registry)
    found = samples(text)
    first, second = one_line(first), one_line(second)
    assert found == {("a_total", ("text", first)): 1, ("b_count_total", ("text", second)): 2}
    assert types(text) == {"a_total": "counter", "b_count": "counter"}
