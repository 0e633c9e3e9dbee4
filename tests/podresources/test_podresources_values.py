"""The values of the PodResources API, and their JSON."""

from __future__ import annotations

from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    MemorySource,
    Pod,
    as_dict,
    ids_by_resource,
)
from tests.sessions import run_python

GPU = "vendor.com/gpu"


def test_one_entry_per_id_and_node():
    group = ContainerDevices(GPU, ("a", "b"), (0, 1))
    assert list(group.entries()) == [
        ContainerDevices(GPU, ("a",), (0,)),
        ContainerDevices(GPU, ("a",), (1,)),
        ContainerDevices(GPU, ("b",), (0,)),
        ContainerDevices(GPU, ("b",), (1,)),
    ]


def test_one_entry_per_id_without_topology():
    group = ContainerDevices(GPU, ("a", "b"))
    assert list(group.entries()) == [
        ContainerDevices(GPU, ("a",)),
        ContainerDevices(GPU, ("b",)),
    ]


def test_ids_by_resource_do_not_depend_on_grouping():
    merged = [ContainerDevices(GPU, ("a", "b"), (0, 1)), ContainerDevices("v.com/nic", ("a",))]
    split = [entry for group in merged for entry in group.entries()]
    assert ids_by_resource(merged) == {GPU: ("a", "b"), "v.com/nic": ("a",)}
    assert ids_by_resource(split) == ids_by_resource(merged)


def test_equality_ignores_restartable_init():
    assert Container("c", restartable_init=True) == Container("c")


def test_equality_ignores_whether_a_pod_is_active():
    assert Pod("p", "ns", active=False) == Pod("p", "ns")
    assert (Pod("p", "ns").active, Container("c").restartable_init) == (True, False)


def test_json_of_pod():
    pod = Pod(
        "p",
        "ns",
        (
            Container(
                "c",
                devices=(ContainerDevices(GPU, ("a",), (0,)), ContainerDevices(GPU, ("b",))),
                cpu_ids=(0, 3),
                memory=(ContainerMemory("memory", 2**40, (1,)),),
                dynamic_resources=(
                    DynamicResource(
                        "claim",
                        "ns",
                        (
                            ClaimResource("d.com", "pool", "dev", ("d.com/x=1",), ""),
                            ClaimResource("d.com", "pool", "other"),
                        ),
                    ),
                ),
            ),
        ),
        cpu_ids=(7,),
    )
    claims = [
        {
            "cdi_devices": [{"name": "d.com/x=1"}],
            "driver_name": "d.com",
            "pool_name": "pool",
            "device_name": "dev",
            "share_id": "",
        },
        {"cdi_devices": [], "driver_name": "d.com", "pool_name": "pool", "device_name": "other"},
    ]
    container = {
        "name": "c",
        "devices": [
            {"resource_name": GPU, "device_ids": ["a"], "topology": {"nodes": [{"ID": "0"}]}},
            {"resource_name": GPU, "device_ids": ["b"]},
        ],
        "cpu_ids": ["0", "3"],
        "memory": [
            {
                "memory_type": "memory",
                "size": "1099511627776",
                "topology": {"nodes": [{"ID": "1"}]},
            }
        ],
        "dynamic_resources": [
            {"claim_name": "claim", "claim_namespace": "ns", "claim_resources": claims}
        ],
    }
    expected = {
        "name": "p",
        "namespace": "ns",
        "containers": [container],
        "cpu_ids": ["7"],
        "memory": [],
    }
    assert as_dict(pod) == expected
    assert as_dict([pod]) == {"pod_resources": [expected]}


def test_json_of_empty_node():
    assert as_dict(Allocatable()) == {"devices": [], "cpu_ids": [], "memory": []}
    assert as_dict(()) == {"pod_resources": []}


def test_memory_source_replaces_only_given_values():
    pods, allocatable = (Pod("p", "ns"),), Allocatable(cpu_ids=(1,))
    source = MemorySource()
    versions = [source.version()]
    source.replace(pods=pods)
    versions.append(source.version())
    source.replace(allocatable=allocatable)
    versions.append(source.version())
    assert (source.pods(), source.allocatable()) == (pods, allocatable)
    source.replace(pods=())
    versions.append(source.version())
    assert (source.pods(), source.allocatable()) == ((), allocatable)
    assert versions == [1, 2, 3, 4]


def test_import_loads_neither_grpc_nor_protobuf():
    code = (
        "import sys, podresources; "
        "heavy = {'grpc', 'google.protobuf', 'tenacity'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    ran = run_python("-c", code)
    assert ran.returncode == 0, ran.stderr
