"""Requests to the subresources ``resize`` and ``ephemeralcontainers`` of a pod that both API
servers refuse with the same text."""

import pytest

from devicemanager.client.api import pod_path
from devicemanager.client.errors import ApiError
from devicemanager.cluster.options import NodeOptions
from devicemanager.core.quantity import Quantity

GPU = "vendor.com/gpu"
MUTABLE = "spec: Forbidden: only cpu and memory resources are mutable"

pytestmark = pytest.mark.timeout(900)

CONTAINERS = [
    {
        "name": "main",
        "image": "example.com/main",
        "resources": {
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "2", "memory": "2Gi"},
        },
    },
    {"name": "side", "image": "example.com/side"},
]


def sizes(name="main", **resources):
    return {"name": name, "resources": resources}


def requests(**amounts):
    return [sizes(requests=amounts)]


def shell(**fields):
    return [{"name": "shell", "image": "example.com/shell", **fields}]


RESIZES = {
    "request over the limit": (
        requests(cpu="3"),
        'resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2',
    ),
    "two requests over their limits": (
        requests(cpu="3", memory="3Gi"),
        # In any order, because kube-apiserver iterates over a map.
        'spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to '
        "cpu limit of 2",
        'spec.containers[0].resources.requests: Invalid value: "3Gi": must be less than or equal '
        "to memory limit of 2Gi",
    ),
    "limit under the request": (
        [sizes(limits={"cpu": "500m"})],
        'Invalid value: "1": must be less than or equal to cpu limit of 500m',
    ),
    "both over": (
        [sizes(requests={"cpu": "2500m"}, limits={"cpu": "2200m"})],
        'Invalid value: "2500m": must be less than or equal to cpu limit of 2200m',
    ),
    "negative": (
        requests(cpu="-1"),
        'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or '
        "equal to 0",
    ),
    "no quantity": (
        requests(cpu="much"),
        ": quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ),
    "device": ([sizes(limits={GPU: "1"})], MUTABLE),
    "request of a device": (
        requests(**{GPU: "1"}),
        "[spec.containers[0].resources.limits: Required value: Limit must be set for non "
        f"overcommitable resources, {MUTABLE}]",
    ),
    "storage": (requests(**{"ephemeral-storage": "1Gi"}), MUTABLE),
    "limit removed": (
        [sizes(limits={"cpu": None})],
        "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
    ),
    "another QoS class": (
        [
            sizes(requests={"cpu": "2", "memory": "2Gi"}),
            sizes("side", limits={"cpu": "1", "memory": "1Gi"}),
        ],
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
    ),
    "another container": (
        [{**sizes("new"), "image": "example.com/new"}],
        "spec.containers: Forbidden: containers may not be added or removed on resize",
    ),
    "more than the node has": (
        [sizes(requests={"cpu": "5"}, limits={"cpu": "6"})],
        'pods "a" is forbidden: node didn\'t have enough allocatable resources: cpu, requested: '
        "5000, allocatable: 4000",
    ),
    "unknown resize policy": (
        [{"name": "main", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Perhaps"}]}],
        '[spec.containers[0].resizePolicy: Unsupported value: "Perhaps": supported values: '
        f'"NotRequired", "RestartContainer", {MUTABLE}]',
    ),
}
SHELLS = {
    "name of a container": (
        [{"name": "main", "image": "example.com/shell"}],
        '.name: Duplicate value: "main"',
    ),
    "no image": ([{"name": "shell"}], ".image: Required value"),
    "bad name": (
        shell(name="Shell"),
        '.name: Invalid value: "Shell": a lowercase RFC 1123 label must consist of lower case '
        "alphanumeric characters or '-', and must start and end with an alphanumeric character "
        "(e.g. 'my-name', or '123-abc'",
    ),
    "unknown target": (
        shell(targetContainerName="none"),
        '.targetContainerName: Not found: "none"',
    ),
    "resources": (
        shell(resources={"limits": {"cpu": "1"}}),
        ".resources: Forbidden: cannot be set for an Ephemeral Container",
    ),
    "port": (
        shell(ports=[{"containerPort": 80}]),
        ".ports: Forbidden: cannot be set for an Ephemeral Container",
    ),
    "probe": (
        shell(livenessProbe={"exec": {"command": ["true"]}}),
        ".livenessProbe: Forbidden: cannot be set for an Ephemeral Container",
    ),
}


@pytest.fixture
def pod(cluster, peer):
    """A running pod with two containers on a node with 4 CPUs."""
    sizes = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    options = NodeOptions(
        labels={"group": peer.name},
        status_interval=0.5,
        amounts={name: Quantity.parse(amount) for name, amount in sizes.items()},
    )
    (node,) = cluster.join_in_memory(peer.name, 1, {}, options=options)
    peer.ready(node.name)
    made = peer.pod("a", 0, containers=CONTAINERS)
    if "generation" not in made["metadata"]:
        peer.delete("a")
        pytest.skip("the API server is older than 1.33")
    peer.phase("a", "Running")
    peer.wait(lambda: peer.get("a")["status"]["containerStatuses"][0].get("resources"))
    return peer.get("a")


def patch(peer, part, field, value):
    path = pod_path(peer.name, "a", part)
    return peer.request("PATCH", path, {"spec": {field: value}}, patch="strategic")


def test_requests_are_refused_with_the_same_text(pod, peer):
    for part, field, rows in (
        ("resize", "containers", RESIZES),
        ("ephemeralcontainers", "ephemeralContainers", SHELLS),
    ):
        for name, (value, *texts) in rows.items():
            with pytest.raises(ApiError) as raised:
                patch(peer, part, field, value)
            assert all(text in raised.value.message for text in texts), name
    assert peer.get("a")["spec"] == pod["spec"]


def test_missing_requests_are_the_limits(pod, peer):
    found = patch(peer, "resize", "containers", requests(cpu=None))
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
