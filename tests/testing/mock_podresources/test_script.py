"""Scripts from documents: the meaning of the fields, and the errors."""

import json
import math

import pytest

from devicemanager.plugin.simulated import IdShape, SimulatedPlugin, SimulationSettings
from devicemanager.testing.mock_podresources import (
    Script,
    ScriptError,
    Step,
    device_ids,
    load_script,
    read_script,
)
from devicemanager.testing.mock_podresources.content import SHAPES
from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

GPU = "vendor.com/gpu"

WHOLE = """
kubelet_version: "1.32"
rate_limit: {qps: 50, burst: 5}
seed: 7
faults: ["fail-pod-resources:code=UNAVAILABLE,times=2"]
pod_resources:
- name: train
  namespace: ml
  cpu_ids: [1]
  memory: [{memory_type: hugepages-2Mi, size: 2097152}]
  containers:
  - name: main
    devices:
    - {resource_name: vendor.com/gpu, device_ids: [g-0, g-1], numa_nodes: [0, 1]}
    cpu_ids: 2-4,8
    memory: [{size: 4Gi, numa_nodes: 0}]
    dynamic_resources:
    - claim_name: c
      claim_namespace: ml
      claim_resources:
      - {driver_name: d, pool_name: p, device_name: x, share_id: s, cdi_devices: [v.com/c=x]}
  - {name: proxy, restartable_init: true}
- {name: done, active: false}
allocatable:
  devices: [{resource_name: vendor.com/gpu, device_ids: [g-0]}]
  cpu_ids: 3
  memory: [{size: 1Ki}]
steps:
- {after: 1.5, set_pods: [{name: new}], delete_pods: [ml/train, new]}
- {pod_resources: [], allocatable: {}, clear_faults: true, serving: false}
repeat: true
---
"""


def write(path, text):
    path.write_text(text)
    return path


def test_every_field_is_parsed(tmp_path):
    script = load_script(write(tmp_path / "s.yaml", WHOLE))
    claimed = ClaimResource("d", "p", "x", ("v.com/c=x",), "s")
    main = Container(
        "main",
        (ContainerDevices(GPU, ("g-0", "g-1"), (0, 1)),),
        (2, 3, 4, 8),
        (ContainerMemory("memory", 4 << 30, (0,)),),
        (DynamicResource("c", "ml", (claimed,)),),
    )
    train = Pod(
        "train",
        "ml",
        (main, Container("proxy")),
        (1,),
        (ContainerMemory("hugepages-2Mi", 2 << 20),),
    )
    assert script.pods == (Pod("done", "default"), train)
    assert [pod.active for pod in script.pods] == [False, True]
    assert [each.restartable_init for each in script.pods[1].containers] == [False, True]
    assert script.allocatable == Allocatable(
        (ContainerDevices(GPU, ("g-0",)),), (3,), (ContainerMemory("memory", 1024),)
    )
    assert (script.kubelet_version, script.seed, script.repeat) == ("1.32", 7, True)
    assert (script.qps, script.burst) == (50, 5)
    assert [str(fault) for fault in script.faults] == [
        "fail-pod-resources:times=2"  # UNAVAILABLE is the default
    ]
    assert script.steps == (
        Step(
            after=1.5,
            set_pods=(Pod("new", "default"),),
            delete_pods=(("ml", "train"), ("default", "new")),
        ),
        Step(pods=(), allocatable=Allocatable(), clear_faults=True, serving=False),
    )


def test_empty_file_is_a_node_without_pods(tmp_path):
    assert load_script(write(tmp_path / "s.yaml", "")) == Script()
    assert (Script().qps, Script().burst) == (100.0, 10)
    assert read_script({"rate_limit": "none"}).qps is None


def test_omitted_fields_have_defaults():
    claim = {"claim_name": "c"}
    shortest = {
        "name": "c",
        "devices": [{"resource_name": GPU}],
        "memory": [{"size": 1}],
        "dynamic_resources": [
            claim,
            {
                **claim,
                "claim_resources": [{"driver_name": "d", "pool_name": "p", "device_name": "x"}],
            },
        ],
    }
    pods = [{"name": "a", "containers": [{"name": "b"}, shortest]}]
    script = read_script({"pod_resources": pods, "allocatable": {}, "steps": [{}]})
    claims = (
        DynamicResource("c", "default", ()),
        DynamicResource("c", "default", (ClaimResource("d", "p", "x", (), None),)),
    )
    devices, memory = (ContainerDevices(GPU, (), ()),), (ContainerMemory("memory", 1, ()),)
    assert script == Script(
        pods=(
            Pod(
                "a",
                "default",
                (
                    Container("b", (), (), (), (), restartable_init=False),
                    Container("c", devices, (), memory, claims, restartable_init=False),
                ),
                (),
                (),
                active=True,
            ),
        ),
        allocatable=Allocatable((), (), ()),
        kubelet_version=None,
        qps=100.0,
        burst=10,
        seed=0,
        faults=(),
        steps=(
            Step(
                after=0.0,
                pods=None,
                allocatable=None,
                set_pods=(),
                delete_pods=(),
                faults=(),
                clear_faults=False,
                serving=None,
            ),
        ),
        repeat=False,
    )


def test_output_of_pods_and_resources_is_a_script(tmp_path, mock_kubelet, simulated_plugin, capsys):
    from devicemanager.cli import main
    from devicemanager.testing import pod_manifest
    from podresources import PodResourcesClient

    simulated_plugin(GPU, 4, numa=(0, 1))
    mock_kubelet.admit(pod_manifest("train", {GPU: 2}))
    paths = []
    for command in ("pods", "resources"):
        socket = str(mock_kubelet.pod_resources_socket)
        assert main([command, "-o", "json", "--socket", socket]) == 0
        paths.append(write(tmp_path / f"{command}.json", capsys.readouterr().out))
    script = load_script(*paths)
    with PodResourcesClient(mock_kubelet.pod_resources_socket) as client:
        assert script.pods == client.list()
        assert script.allocatable == client.get_allocatable()


def test_devices_can_be_given_by_count_and_index():
    allocatable = {"resource_name": GPU, "count": 5, "id_shape": "replica", "replicas": 2}
    allocated = {"resource_name": GPU, "indexes": "0,1,2"}
    pods = [{"name": "a", "containers": [{"name": "c", "devices": [allocated]}]}]
    script = read_script(
        # Neither the order of keys nor that of documents matters.
        {"pod_resources": pods},
        {"allocatable": {"devices": [allocatable | {"numa": [0, 1]}]}},
    )
    ids = device_ids("replica", 5, replicas=2)
    assert [id_.partition("::")[2] for id_ in ids] == ["0", "1", "0", "1", "0"]
    [container] = script.pods[0].containers
    assert container.devices == (
        ContainerDevices(GPU, (ids[0],), (0,)),
        ContainerDevices(GPU, (ids[1],), (1,)),
        ContainerDevices(GPU, (ids[2],), (0,)),
    )
    assert sum(len(each.device_ids) for each in script.allocatable.devices) == 5
    named = {"device_id_prefix": "x", "node_name": "n", "resource_name": GPU, "count": 1}
    (device,) = read_script({"allocatable": {"devices": [named]}}).allocatable.devices
    assert device == ContainerDevices(GPU, ("x-n-0",))
    plain = read_script({"allocatable": {"devices": [{"resource_name": GPU, "count": 2}]}})
    assert plain.allocatable.devices == (ContainerDevices(GPU, ("gpu-mock-0", "gpu-mock-1")),)
    shared = {"resource_name": GPU, "count": 3, "id_shape": "replica"}
    (device,) = read_script({"allocatable": {"devices": [shared]}}).allocatable.devices
    assert device.device_ids == tuple(device_ids("replica", 3, replicas=2))


@pytest.mark.parametrize("shape", SHAPES)
def test_device_ids_equal_those_of_a_simulated_plugin(tmp_path, shape):
    settings = SimulationSettings(
        resource_name=GPU,
        number_devices=9,
        id_shape=shape,
        device_id_prefix="gpu",
        node_name="mock",
    )
    plugin = SimulatedPlugin(settings, tmp_path)
    assert device_ids(shape, 9) == tuple(device.id for device in plugin.devices)


def test_shapes_are_those_of_the_simulated_plugin():
    assert set(SHAPES) == set(IdShape)


def pod(**fields):
    return {"pod_resources": [{"name": "a", **fields}]}


def container(**fields):
    return pod(containers=[{"name": "c", **fields}])


def device(**fields):
    return container(devices=[{"resource_name": GPU, **fields}])


IN_DEVICE = "pod_resources[0].containers[0].devices[0]"
INVALID = [
    ([], "expected a mapping, not a list"),
    ({"pods": []}, "unknown field 'pods': use one of allocatable, pod_resources"),
    ({"pod_resource": []}, "unknown field 'pod_resource': did you mean pod_resources?"),
    (
        {"allocatable": {}, "devices": [], "cpu_ids": 1},
        "document 1: devices, cpu_ids: move these fields to allocatable",
    ),
    (pod(name=""), 'pod_resources[0].name: expected a non-empty string, not the text ""'),
    ({"pod_resources": [{}]}, "pod_resources[0]: name is missing"),
    ({"pod_resources": [{"name": "a"}] * 2}, "pod_resources: duplicate pod default/a"),
    (pod(containers="c"), "pod_resources[0].containers: expected a list, not the text"),
    (pod(active=1), "pod_resources[0].active: expected true or false, not the number 1"),
    (container(cpu_ids="0-x"), "cpu_ids: invalid `0-x`: expected a number or a range such as 0-3"),
    (container(cpu_ids="3-1"), "cpu_ids: invalid range `3-1`: put the lower number first"),
    (container(cpu_ids="0-65536"), "cpu_ids: range `0-65536` too long: limit 65536 numbers"),
    (container(cpu_ids=[-1]), "cpu_ids[0]: expected a whole number of at least 0, not"),
    (container(memory=[{}]), "memory[0]: size is missing"),
    (container(memory=[{"size": "4 G"}]), "size: expected an amount in bytes such as 4Gi"),
    (container(memory=[{"size": True}]), "size: expected an amount in bytes such as 4Gi"),
    (container(dynamic_resources=[{"claim_name": "c", "claim_resources": [{}]}]), "driver_name is"),
    (device(indexes="0"), f"{IN_DEVICE}: indexes: {GPU} has no generated devices: add it"),
    (
        {"allocatable": {"devices": [{"resource_name": GPU, "count": 1}]}, **device(indexes=[1])},
        f"{IN_DEVICE}: indexes: 1 is too large: {GPU} has 1 device, ",
    ),
    (
        {"allocatable": {"devices": [{"resource_name": GPU, "count": 1, "id_shape": "x"}]}},
        "allocatable.devices[0]: unknown id_shape 'x': use one of index, gpu-uuid, mig, replica",
    ),
    (
        {"allocatable": {"devices": [{"resource_name": GPU, "count": 100_001}]}},
        "allocatable.devices[0]: count is 100001: use at most 100000",
    ),
    *(
        (
            {"allocatable": {"devices": [{"resource_name": GPU, "count": 1, **wrong}]}},
            f"expected a whole number of at least {least}, not the number {least - 1}",
        )
        for wrong, least in (({"count": -1}, 0), ({"replicas": 0}, 1))
    ),
    ({"kubelet_version": 1.3}, "kubelet_version: invalid kubelet version 1.3: use"),
    ({"kubelet_version": "1.2"}, "kubelet_version: unknown kubelet version '1.2': use "),
    ({"rate_limit": {"qps": 0}}, "rate_limit.qps: expected a number above 0, not the number 0"),
    (
        {"rate_limit": {"qps": math.inf}},
        "rate_limit.qps: expected a number above 0, not an infinite number",
    ),
    (
        {"rate_limit": {"qps": 10**400}},
        "rate_limit.qps: expected a number above 0, not a very large number",
    ),
    ({"rate_limit": {"burst": 1.5}}, "rate_limit.burst: expected a whole number of at least 1"),
    (
        {"rate_limit": {"burst": 10**400}},
        "rate_limit.burst: expected a whole number of at most 9223372036854775807, not a very ",
    ),
    (
        {"rate_limit": {"burst": 1 << 63}},
        "rate_limit.burst: expected a whole number of at most 9223372036854775807, not the number "
        "9223372036854775808",
    ),
    ({"seed": -1}, "seed: expected a whole number of at least 0, not the number -1"),
    ({"faults": ["no-such"]}, "faults[0]: unknown fault 'no-such': use one of "),
    ({"faults": ["restart:on=call"]}, "faults[0]: "),
    ({"faults": ["reject-register"]}, "faults[0]: fault reject-register needs a kubelet, which"),
    (
        {"steps": [{"after": -1}]},
        "steps[0].after: expected a number of at least 0, not the number -1",
    ),
    (
        {"steps": [{"after": math.inf}]},
        "steps[0].after: expected a number of at least 0, not an infinite number",
    ),
    (
        {"steps": [{"after": 10**400}]},
        "steps[0].after: expected a number of at least 0, not a very large number",
    ),
    (
        {"steps": [{}], "repeat": True},
        "repeat: the steps have no pauses: add `after` to a step",
    ),
]


def test_seed_can_have_any_size():
    assert read_script({"seed": 1 << 64}).seed == 1 << 64


@pytest.mark.parametrize(("document", "text"), INVALID, ids=range(len(INVALID)))
def test_error_names_the_field(document, text):
    with pytest.raises(ScriptError) as caught:
        read_script(document)
    assert text in str(caught.value)
    assert str(caught.value).startswith("document 1: ")


@pytest.mark.parametrize("count", [0, 100_000])
def test_number_of_devices_has_these_limits(count):
    devices = [{"resource_name": GPU, "count": count}]
    found = read_script({"allocatable": {"devices": devices}}).allocatable.devices
    assert sum(len(each.device_ids) for each in found) == count


def test_error_names_the_file(tmp_path):
    with pytest.raises(ScriptError, match=r"^/nowhere: No such file or directory$"):
        load_script("/nowhere")
    with pytest.raises(ScriptError, match=r"^cannot read .*: it is a directory, not a regular"):
        load_script(tmp_path)
    path = tmp_path / "s"
    path.write_bytes(b"\xff")
    with pytest.raises(ScriptError, match=r"s: it is not UTF-8 text$"):
        load_script(path)
    with pytest.raises(ScriptError, match=r"s: not YAML: line 2, column 1: "):
        load_script(write(path, "{"))
    one = json.dumps({"pod_resources": []})
    with pytest.raises(
        ScriptError, match=r"s: duplicate field pod_resources: another document also has it$"
    ):
        load_script(write(path, f"{one}\n---\n{one}"))


class _Counted(str):
    """A name that counts comparisons with other names."""

    compared = 0

    def __eq__(self, other):
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_names_of_many_pods_are_not_compared_with_each_other():
    """Reading 20,000 pods took 9.5 s: every name was compared with all earlier ones."""
    pods = [{"name": _Counted(f"p{number}")} for number in range(500)]
    script = read_script({"pod_resources": pods})
    assert len(script.pods) == 500
    assert _Counted.compared < 20 * 500
