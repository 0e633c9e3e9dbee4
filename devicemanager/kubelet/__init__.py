"""The mock kubelet: its process, its sockets and directories, and the state that a restart keeps.

Purpose: run the kubelet's side of the device plugin API on real sockets, without a cluster, and let
a test observe and control the kubelet.

Inputs: ``Settings``, pod manifests, plugins that register on ``kubelet.sock`` or are found by the
plugin watcher, and calls of PodResources clients. Outputs: admissions with the devices and settings
of each container, pod and node statuses, the checkpoint file, and PodResources responses. Events
and calls record everything that happens.

Invariants:
* A restart replaces the ``KubeletProcess``, with its device manager and servers; the
  ``MockKubelet`` stays the same. Starts and stops are serialized (``lifecycle``).
* ``devicemanager.core`` makes all decisions while one lock is held (``manager.state``). No call,
  callback or file write happens while this lock is held.
* Nothing is removed from a directory that other users could change (``directories``).
* A start imports only what every kubelet needs; reports, manifests, claims and faults are
  loaded at first use (tests/kubelet/test_start_loads.py).

Start reading in ``mock``. It has every public member, and delegates the work to other modules:
``lifecycle``, ``node_pods``, ``waits``, ``direct``, ``directories``. ``process`` puts one
kubelet process together from ``manager``, ``pods`` and ``registration``. ``inmemory`` is the
same kubelet without servers. ``interface`` has the methods that a ``MockKubelet`` and the client
of its control API have in common.

This package exports the types of the arguments and results of kubelet methods. Import
``MockKubelet`` itself, ``Settings`` and events from ``devicemanager``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.core.devices import Device
    from devicemanager.core.dra.report import (
        ClaimDevice,
        ClaimExplanation,
        ClaimResult,
        ClaimsExplanation,
        ClaimState,
        DraStatus,
        DriverInstance,
        ResourceClaimInfo,
        ResourceSliceInfo,
        SkippedCalls,
    )
    from devicemanager.core.endpoints import PluginOptions
    from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
    from devicemanager.core.ledger import AllocatedDevices
    from devicemanager.core.node import NodeStatus
    from devicemanager.core.pods import Container, Pod, RestartPolicy, RestartRule
    from devicemanager.core.podstatus.conditions import Condition
    from devicemanager.core.podstatus.containers import (
        ContainerStatus,
        Running,
        Terminated,
        Waiting,
    )
    from devicemanager.core.podstatus.phase import Phase
    from devicemanager.core.podstatus.status import ContainerEntry, PodStatus, QosClass
    from devicemanager.core.providers.provider import CpusAndMemory, HintProvider, MemoryBlock
    from devicemanager.core.quantity import Quantity
    from devicemanager.core.runoptions import (
        Conflict,
        ContainerSettings,
        DeviceSpec,
        Mount,
        NetworkInterface,
        PciDevice,
        RunOptions,
    )
    from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
    from devicemanager.core.topology.hints import Hint
    from devicemanager.kubelet.direct import DeviceLists
    from devicemanager.kubelet.dra.claim_source import ResourceClaims
    from devicemanager.kubelet.interface import (
        AdmissionView,
        ClockView,
        ContainerView,
        EventsView,
        FaultsView,
        FragmentView,
    )
    from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
    from devicemanager.kubelet.manager.plugin_handler import HealthUpdates
    from devicemanager.kubelet.pods.admission import ContainerOutcome
    from devicemanager.kubelet.pods.pod_info import ContainerInfo, ContainerKind, PodInfo
    from devicemanager.kubelet.pods.runtime import ContainerRuntime
    from devicemanager.kubelet.telemetry import NodeInfo

__all__ = [
    "AdmissionView",
    "AllocatedDevices",
    "ClaimDevice",
    "ClaimExplanation",
    "ClaimResult",
    "ClaimState",
    "ClaimsExplanation",
    "ClockView",
    "Condition",
    "Conflict",
    "Container",
    "ContainerEntry",
    "ContainerInfo",
    "ContainerKind",
    "ContainerName",
    "ContainerOutcome",
    "ContainerRuntime",
    "ContainerSettings",
    "ContainerStatus",
    "ContainerView",
    "CpusAndMemory",
    "Device",
    "DeviceId",
    "DeviceLists",
    "DeviceSpec",
    "DeviceStatus",
    "DraStatus",
    "DriverInstance",
    "EventsView",
    "FaultsView",
    "FragmentView",
    "Health",
    "HealthUpdates",
    "Hint",
    "HintProvider",
    "MemoryBlock",
    "Mount",
    "NetworkInterface",
    "NodeInfo",
    "NodeStatus",
    "PciDevice",
    "Phase",
    "PluginOptions",
    "PluginStatus",
    "Pod",
    "PodInfo",
    "PodStatus",
    "PodUid",
    "QosClass",
    "Quantity",
    "ResourceClaimInfo",
    "ResourceClaims",
    "ResourceClaimsView",
    "ResourceHealth",
    "ResourceName",
    "ResourceSliceInfo",
    "ResourceStatus",
    "RestartPolicy",
    "RestartRule",
    "RunOptions",
    "Running",
    "SkippedCalls",
    "Terminated",
    "Waiting",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AdmissionView": "interface",
        "ResourceClaimInfo": ".core.dra.report",
        "ResourceSliceInfo": ".core.dra.report",
        "SkippedCalls": ".core.dra.report",
        "DriverInstance": ".core.dra.report",
        "DraStatus": ".core.dra.report",
        "ClaimsExplanation": ".core.dra.report",
        "ClaimState": ".core.dra.report",
        "ClaimExplanation": ".core.dra.report",
        "ClaimDevice": ".core.dra.report",
        "ClaimResult": ".core.dra.report",
        "ResourceClaimsView": "interface",
        "ClockView": "interface",
        "Condition": ".core.podstatus.conditions",
        "Conflict": ".core.runoptions",
        "Container": ".core.pods",
        "ContainerEntry": ".core.podstatus.status",
        "ContainerInfo": "pods.pod_info",
        "ContainerKind": "pods.pod_info",
        "ContainerName": ".core.ids",
        "ContainerOutcome": "pods.admission",
        "ContainerRuntime": "pods.runtime",
        "ContainerSettings": ".core.runoptions",
        "ContainerStatus": ".core.podstatus.containers",
        "ContainerView": "interface",
        "Device": ".core.devices",
        "DeviceId": ".core.ids",
        "DeviceLists": "direct",
        "DeviceSpec": ".core.runoptions",
        "DeviceStatus": "inventory",
        "EventsView": "interface",
        "FaultsView": "interface",
        "FragmentView": "interface",
        "Health": ".core.status",
        "HealthUpdates": "manager.plugin_handler",
        "CpusAndMemory": ".core.providers.provider",
        "Hint": ".core.topology.hints",
        "HintProvider": ".core.providers.provider",
        "AllocatedDevices": ".core.ledger",
        "MemoryBlock": ".core.providers.provider",
        "Mount": ".core.runoptions",
        "NetworkInterface": ".core.runoptions",
        "NodeInfo": "telemetry",
        "NodeStatus": ".core.node",
        "PciDevice": ".core.runoptions",
        "Phase": ".core.podstatus.phase",
        "PluginOptions": ".core.endpoints",
        "PluginStatus": "inventory",
        "Pod": ".core.pods",
        "PodInfo": "pods.pod_info",
        "PodStatus": ".core.podstatus.status",
        "PodUid": ".core.ids",
        "QosClass": ".core.podstatus.status",
        "Quantity": ".core.quantity",
        "ResourceClaims": "dra.claim_source",
        "ResourceHealth": ".core.status",
        "ResourceName": ".core.ids",
        "ResourceStatus": ".core.status",
        "RestartPolicy": ".core.pods",
        "RestartRule": ".core.pods",
        "RunOptions": ".core.runoptions",
        "Running": ".core.podstatus.containers",
        "Terminated": ".core.podstatus.containers",
        "Waiting": ".core.podstatus.containers",
    },
)
