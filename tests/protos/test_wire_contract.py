"""The published API: number and type of every field, path and types of every method.

The tables are independent of the .proto files, so that a mistake in those files is found.
"""

import pytest
from google.protobuf.descriptor import FieldDescriptor as F

from protos import (
    deviceplugin_v1beta1,
    deviceplugin_v1beta1_grpc,
    dra_v1,
    dra_v1_grpc,
    dra_v1beta1,
    dra_v1beta1_grpc,
    drahealth_v1,
    drahealth_v1_grpc,
    drahealth_v1alpha1,
    drahealth_v1alpha1_grpc,
    pluginregistration_v1,
    pluginregistration_v1_grpc,
    podresources_v1,
    podresources_v1_grpc,
    podresources_v1alpha1,
    podresources_v1alpha1_grpc,
    pods_v1alpha1,
    pods_v1alpha1_grpc,
)

CLAIMS = {
    "NodePrepareResourcesRequest": ["1 claims: repeated Claim"],
    "NodePrepareResourcesResponse": ["1 claims: map<string,NodePrepareResourceResponse>"],
    "NodePrepareResourceResponse": ["1 devices: repeated Device", "2 error: string"],
    "Device": [
        "1 request_names: repeated string",
        "2 pool_name: string",
        "3 device_name: string",
        "4 cdi_device_ids: repeated string",
    ],
    "NodeUnprepareResourcesRequest": ["1 claims: repeated Claim"],
    "NodeUnprepareResourcesResponse": ["1 claims: map<string,NodeUnprepareResourceResponse>"],
    "NodeUnprepareResourceResponse": ["1 error: string"],
    "Claim": ["1 namespace: string", "2 uid: string", "3 name: string"],
}

HEALTH = {
    "NodeWatchResourcesRequest": [],
    "DeviceIdentifier": ["1 pool_name: string", "2 device_name: string"],
    "DeviceHealth": [
        "1 device: DeviceIdentifier",
        "2 health: HealthStatus",
        "3 last_updated_time: int64",
        "4 health_check_timeout_seconds: int64",
        "5 message: string",
    ],
    "NodeWatchResourcesResponse": ["1 devices: repeated DeviceHealth"],
}

MESSAGES = {
    deviceplugin_v1beta1: {
        "DevicePluginOptions": [
            "1 pre_start_required: bool",
            "2 get_preferred_allocation_available: bool",
        ],
        "RegisterRequest": [
            "1 version: string",
            "2 endpoint: string",
            "3 resource_name: string",
            "4 options: DevicePluginOptions",
        ],
        "Empty": [],
        "ListAndWatchResponse": ["1 devices: repeated Device"],
        "TopologyInfo": ["1 nodes: repeated NUMANode"],
        "NUMANode": ["1 ID: int64"],
        "Device": ["1 ID: string", "2 health: string", "3 topology: TopologyInfo"],
        "PreStartContainerRequest": ["1 devices_ids: repeated string"],
        "PreStartContainerResponse": [],
        "PreferredAllocationRequest": [
            "1 container_requests: repeated ContainerPreferredAllocationRequest",
        ],
        "ContainerPreferredAllocationRequest": [
            "1 available_deviceIDs: repeated string",
            "2 must_include_deviceIDs: repeated string",
            "3 allocation_size: int32",
        ],
        "PreferredAllocationResponse": [
            "1 container_responses: repeated ContainerPreferredAllocationResponse",
        ],
        "ContainerPreferredAllocationResponse": ["1 deviceIDs: repeated string"],
        "AllocateRequest": ["1 container_requests: repeated ContainerAllocateRequest"],
        "ContainerAllocateRequest": ["1 devices_ids: repeated string"],
        "CDIDevice": ["1 name: string"],
        "AllocateResponse": ["1 container_responses: repeated ContainerAllocateResponse"],
        "ContainerAllocateResponse": [
            "1 envs: map<string,string>",
            "2 mounts: repeated Mount",
            "3 devices: repeated DeviceSpec",
            "4 annotations: map<string,string>",
            "5 cdi_devices: repeated CDIDevice",
            "1000 typed_devices: repeated TypedDevice",
        ],
        "Mount": ["1 container_path: string", "2 host_path: string", "3 read_only: bool"],
        "DeviceSpec": ["1 container_path: string", "2 host_path: string", "3 permissions: string"],
        # An extension of this project; the number 1000 leaves room for new fields of Kubernetes.
        "TypedDevice": [
            "1 filesystem: FilesystemDevice",
            "2 netlink: NetlinkDevice",
            "3 pci: PciDevice",
        ],
        "FilesystemDevice": [
            "1 container_path: string",
            "2 host_path: string",
            "3 permissions: string",
        ],
        "NetlinkDevice": [
            "1 net_ns: string",
            "2 interface_name: string",
            "3 container_name: string",
        ],
        "PciDevice": [
            "1 vendor_id: string",
            "2 product_id: string",
            "3 addresses: repeated string",
        ],
    },
    podresources_v1: {
        "AllocatableResourcesRequest": [],
        "AllocatableResourcesResponse": [
            "1 devices: repeated ContainerDevices",
            "2 cpu_ids: repeated int64",
            "3 memory: repeated ContainerMemory",
        ],
        "ListPodResourcesRequest": [],
        "ListPodResourcesResponse": ["1 pod_resources: repeated PodResources"],
        "PodResources": [
            "1 name: string",
            "2 namespace: string",
            "3 containers: repeated ContainerResources",
            "4 cpu_ids: repeated int64",
            "5 memory: repeated ContainerMemory",
        ],
        "ContainerResources": [
            "1 name: string",
            "2 devices: repeated ContainerDevices",
            "3 cpu_ids: repeated int64",
            "4 memory: repeated ContainerMemory",
            "5 dynamic_resources: repeated DynamicResource",
        ],
        "ContainerMemory": ["1 memory_type: string", "2 size: uint64", "3 topology: TopologyInfo"],
        "ContainerDevices": [
            "1 resource_name: string",
            "2 device_ids: repeated string",
            "3 topology: TopologyInfo",
        ],
        "TopologyInfo": ["1 nodes: repeated NUMANode"],
        "NUMANode": ["1 ID: int64"],
        "DynamicResource": [
            "2 claim_name: string",
            "3 claim_namespace: string",
            "4 claim_resources: repeated ClaimResource",
        ],
        "ClaimResource": [
            "1 cdi_devices: repeated CDIDevice",
            "2 driver_name: string",
            "3 pool_name: string",
            "4 device_name: string",
            "5 share_id: optional string",
        ],
        "CDIDevice": ["1 name: string"],
        "GetPodResourcesRequest": ["1 pod_name: string", "2 pod_namespace: string"],
        "GetPodResourcesResponse": ["1 pod_resources: PodResources"],
    },
    podresources_v1alpha1: {
        "ListPodResourcesRequest": [],
        "ListPodResourcesResponse": ["1 pod_resources: repeated PodResources"],
        "PodResources": [
            "1 name: string",
            "2 namespace: string",
            "3 containers: repeated ContainerResources",
        ],
        "ContainerResources": ["1 name: string", "2 devices: repeated ContainerDevices"],
        "ContainerDevices": ["1 resource_name: string", "2 device_ids: repeated string"],
    },
    pluginregistration_v1: {
        "PluginInfo": [
            "1 type: string",
            "2 name: string",
            "3 endpoint: string",
            "4 supported_versions: repeated string",
        ],
        "RegistrationStatus": ["1 plugin_registered: bool", "2 error: string"],
        "RegistrationStatusResponse": [],
        "InfoRequest": [],
    },
    pods_v1alpha1: {
        "WatchPodsEvent": ["1 type: EventType", "2 pod: bytes"],
        "ListPodsResponse": ["1 pods: repeated bytes"],
        "GetPodResponse": ["1 pod: bytes"],
        "WatchPodsRequest": [],
        "ListPodsRequest": [],
        "GetPodRequest": ["1 podUID: string"],
    },
    dra_v1: {
        **CLAIMS,
        "NodePrepareResourceResponse": [
            *CLAIMS["NodePrepareResourceResponse"],
            "3 permanent_error: bool",  # KEP-5322
        ],
        "Device": [*CLAIMS["Device"], "5 share_id: optional string"],
    },
    dra_v1beta1: CLAIMS,
    drahealth_v1: HEALTH,
    drahealth_v1alpha1: HEALTH,
}


def claim_methods(version):
    service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    return {
        f"{service}/Node{verb}Resources": (
            f"Node{verb}ResourcesRequest",
            f"Node{verb}ResourcesResponse",
        )
        for verb in ("Prepare", "Unprepare")
    }


WATCH = ("NodeWatchResourcesRequest", "stream NodeWatchResourcesResponse")

METHODS = {
    deviceplugin_v1beta1_grpc: {
        "/v1beta1.Registration/Register": ("RegisterRequest", "Empty"),
        "/v1beta1.DevicePlugin/GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
        "/v1beta1.DevicePlugin/ListAndWatch": ("Empty", "stream ListAndWatchResponse"),
        "/v1beta1.DevicePlugin/GetPreferredAllocation": (
            "PreferredAllocationRequest",
            "PreferredAllocationResponse",
        ),
        "/v1beta1.DevicePlugin/Allocate": ("AllocateRequest", "AllocateResponse"),
        "/v1beta1.DevicePlugin/PreStartContainer": (
            "PreStartContainerRequest",
            "PreStartContainerResponse",
        ),
    },
    podresources_v1_grpc: {
        "/v1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
        "/v1.PodResourcesLister/GetAllocatableResources": (
            "AllocatableResourcesRequest",
            "AllocatableResourcesResponse",
        ),
        "/v1.PodResourcesLister/Get": ("GetPodResourcesRequest", "GetPodResourcesResponse"),
    },
    podresources_v1alpha1_grpc: {
        "/v1alpha1.PodResourcesLister/List": (
            "ListPodResourcesRequest",
            "ListPodResourcesResponse",
        ),
    },
    pluginregistration_v1_grpc: {
        "/pluginregistration.Registration/GetInfo": ("InfoRequest", "PluginInfo"),
        "/pluginregistration.Registration/NotifyRegistrationStatus": (
            "RegistrationStatus",
            "RegistrationStatusResponse",
        ),
    },
    pods_v1alpha1_grpc: {
        "/v1alpha1.Pods/WatchPods": ("WatchPodsRequest", "stream WatchPodsEvent"),
        "/v1alpha1.Pods/ListPods": ("ListPodsRequest", "ListPodsResponse"),
        "/v1alpha1.Pods/GetPod": ("GetPodRequest", "GetPodResponse"),
    },
    dra_v1_grpc: claim_methods("v1"),
    dra_v1beta1_grpc: claim_methods("v1beta1"),
    drahealth_v1_grpc: {"/v1.DRAResourceHealth/NodeWatchResources": WATCH},
    drahealth_v1alpha1_grpc: {"/v1alpha1.DRAResourceHealth/NodeWatchResources": WATCH},
}

PACKAGES = {
    deviceplugin_v1beta1: "v1beta1",
    podresources_v1: "v1",
    podresources_v1alpha1: "v1alpha1",
    pluginregistration_v1: "pluginregistration",
    pods_v1alpha1: "v1alpha1",
    dra_v1: "k8s.io.kubelet.pkg.apis.dra.v1",
    dra_v1beta1: "k8s.io.kubelet.pkg.apis.dra.v1beta1",
    drahealth_v1: "v1",
    drahealth_v1alpha1: "v1alpha1",
}

ENUMS = {
    pods_v1alpha1: ["EventType"],
    drahealth_v1: ["HealthStatus"],
    drahealth_v1alpha1: ["HealthStatus"],
}

SCALARS = {
    F.TYPE_STRING: "string",
    F.TYPE_BYTES: "bytes",
    F.TYPE_BOOL: "bool",
    F.TYPE_INT32: "int32",
    F.TYPE_INT64: "int64",
    F.TYPE_UINT64: "uint64",
}


def kind_of(field):
    return SCALARS.get(field.type) or (field.message_type or field.enum_type).name


def described(field):
    """Return a field in the notation of the tables."""
    # protobuf 7 removed ``label``; older versions have no ``is_repeated``.
    repeated = getattr(field, "is_repeated", None)
    if repeated is None:
        repeated = field.label == F.LABEL_REPEATED
    kind = kind_of(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = map(kind_of, field.message_type.fields)
        return f"{field.number} {field.name}: map<{key},{value}>"
    oneof = field.containing_oneof
    optional = oneof is not None and oneof.name == f"_{field.name}"
    prefix = "repeated " if repeated else "optional " if optional else ""
    return f"{field.number} {field.name}: {prefix}{kind}"


def by_name(module):
    return module.__name__.rpartition(".")[2]


@pytest.mark.parametrize("module", MESSAGES, ids=by_name)
def test_fields_have_expected_numbers_and_types(module):
    found = {
        name: [described(field) for field in descriptor.fields]
        for name, descriptor in module.DESCRIPTOR.message_types_by_name.items()
    }
    assert found == MESSAGES[module]


@pytest.mark.parametrize("module", MESSAGES, ids=by_name)
def test_package_names(module):
    assert module.DESCRIPTOR.package == PACKAGES[module]


@pytest.mark.parametrize("module", MESSAGES, ids=by_name)
def test_every_message_is_exported(module):
    assert sorted(module.__all__) == sorted(
        [*MESSAGES[module], *ENUMS.get(module, ()), "DESCRIPTOR"]
    )
    for name in MESSAGES[module]:
        assert getattr(module, name).DESCRIPTOR.full_name == f"{PACKAGES[module]}.{name}"


@pytest.mark.parametrize(
    ("messages", "services"), [*zip(MESSAGES, METHODS, strict=True)], ids=by_name
)
def test_methods_have_expected_paths_and_types(messages, services):
    found = {
        f"/{service.full_name}/{method.name}": (
            method.input_type.name,
            ("stream " if method.server_streaming else "") + method.output_type.name,
        )
        for service in messages.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert found == METHODS[services]


@pytest.mark.parametrize("services", METHODS, ids=by_name)
def test_path_constants(services):
    constants = [getattr(services, name) for name in services.__all__ if name.isupper()]
    assert sorted(constants) == sorted(METHODS[services])


def test_event_types_of_the_pods_api():
    assert dict(pods_v1alpha1.EventType.items()) == {
        "UNSPECIFIED": 0,
        "ADDED": 1,
        "MODIFIED": 2,
        "DELETED": 3,
        "INITIAL_SYNC_COMPLETE": 4,
    }


@pytest.mark.parametrize("module", [drahealth_v1, drahealth_v1alpha1], ids=by_name)
def test_health_of_devices(module):
    assert dict(module.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}
