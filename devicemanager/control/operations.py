"""Every operation of the control API, in one table.

Handlers, the OpenAPI document and the client's checks are made of it. A test fails if a
public member of ``MockKubelet`` is neither here nor in ``NOT_HERE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from devicemanager.control import callwaits, direct, handlers, podlife, shapes
from devicemanager.control.openapi import About, build
from devicemanager.control.operation import Body, Kind, Operation, call
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.runoptions import RunOptions

__all__ = ["NOT_HERE", "OPERATIONS", "document", "operation"]


_POD = "/v1/pods/{uid}"
_CONTAINER = _POD + "/containers/{container}"

OPERATIONS: Final[tuple[Operation, ...]] = (
    call(
        "getNode",
        "GET",
        "/v1/node",
        "is_serving mark root plugin_dir plugin_socket pod_resources_socket plugins_registry_dir "
        "checkpoint_path claims_state_path",
        "Show the node and where its kubelet's files are.",
        handlers.node,
        answer=shapes.Node,
    ),
    call(
        "getNodeStatus",
        "GET",
        "/v1/node/status",
        "node_status",
        "Show the devices of the node's status.",
        handlers.node_status,
        answer=shapes.NodeStatus,
    ),
    call(
        "startKubelet",
        "POST",
        "/v1/node/start",
        "start",
        "Serve again after a stop; pods that are known are admitted again.",
        handlers.start,
    ),
    call(
        "stopKubelet",
        "POST",
        "/v1/node/stop",
        "stop",
        "Stop serving. Pods and containers stay as they are, and so does the control API.",
        handlers.stop,
    ),
    call(
        "restartKubelet",
        "POST",
        "/v1/node/restart",
        "restart",
        "Start the kubelet's process anew; containers keep running.",
        handlers.restart,
    ),
    call(
        "rebootNode",
        "POST",
        "/v1/node/reboot",
        "reboot",
        "Start the node anew: no container runs, every pod is admitted again.",
        handlers.reboot,
    ),
    call(
        "setSourcesReady",
        "POST",
        "/v1/node/sources-ready",
        "sources_ready",
        "Say that all pods of the node are known: devices of others are freed.",
        handlers.sources_ready,
    ),
    call(
        "checkServers",
        "POST",
        "/v1/node/check",
        "check",
        "Report the first error on a server thread since the last check, if there was one.",
        handlers.check,
    ),
    call(
        "listResources",
        "GET",
        "/v1/resources",
        "capacity allocatable",
        "List resources with their counts of devices.",
        handlers.resources,
        answer=shapes.ResourceList,
    ),
    call(
        "listPlugins",
        "GET",
        "/v1/plugins",
        "plugins",
        "List the plugin of each known resource.",
        handlers.plugins,
        answer=shapes.PluginList,
    ),
    call(
        "listDevices",
        "GET",
        "/v1/devices",
        "inventory",
        "List devices with their health and holders.",
        handlers.devices,
        query=shapes.ResourceQuery,
        answer=shapes.DeviceList,
    ),
    call(
        "admitPod",
        "POST",
        "/v1/pods",
        "admit",
        "Admit a pod. A rejection is an answer, too.",
        handlers.admit,
        query=shapes.StartQuery,
        body=Body.MANIFEST,
        answer=shapes.Admission,
        status=HTTPStatus.CREATED,
    ),
    call(
        "listPods",
        "GET",
        "/v1/pods",
        "pods",
        "List the pods that are known and not deleted.",
        handlers.pods,
        answer=shapes.PodList,
    ),
    call(
        "deletePods",
        "DELETE",
        "/v1/pods",
        "terminate",
        "End and delete pods, all of them or none.",
        handlers.delete_pods,
        query=shapes.PodQuery,
    ),
    call("getPod", "GET", _POD, "pod", "Show one pod.", handlers.pod, answer=shapes.Pod),
    call(
        "deletePod",
        "DELETE",
        _POD,
        "terminate",
        "End and delete a pod: its devices are free.",
        handlers.delete_pod,
    ),
    call(
        "deletePodGracefully",
        "POST",
        _POD + "/delete",
        "delete",
        "Delete a pod once its containers have ended, or its grace period is over.",
        podlife.delete,
        body=podlife.Delete,
    ),
    call(
        "finishPod",
        "POST",
        _POD + "/finish",
        "finish",
        "Let every app container of a pod end by itself.",
        handlers.finish,
        body=shapes.Finish,
        answer=shapes.Finished,
    ),
    call(
        "getPodDevices",
        "GET",
        _POD + "/devices",
        "devices",
        "Show what a pod holds.",
        handlers.pod_devices,
        answer=shapes.PodDevices,
    ),
    call(
        "getPodResourcesStatus",
        "GET",
        _POD + "/resources-status",
        "allocated_resources_status",
        "Show allocatedResourcesStatus of a pod.",
        handlers.resources_status,
        answer=shapes.PodResourcesStatus,
    ),
    call(
        "getContainerStatuses",
        "GET",
        _POD + "/container-statuses",
        "container_statuses",
        "Show the statuses of a pod's containers: waiting, running or terminated.",
        podlife.container_statuses,
        answer=podlife.ContainerStatusList,
    ),
    call(
        "startContainer",
        "POST",
        _CONTAINER + "/start",
        "start_container",
        "Start a container of an admitted pod.",
        handlers.start_container,
        answer=RunOptions,
    ),
    call(
        "restartContainer",
        "POST",
        _CONTAINER + "/restart",
        "restart_container",
        "Start a container again, with the same devices.",
        handlers.restart_container,
        answer=RunOptions,
    ),
    call(
        "exitContainer",
        "POST",
        _CONTAINER + "/exit",
        "exit_container",
        "Let a running container end by itself; the kubelet starts it again or ends the pod.",
        podlife.exit_container,
        body=podlife.ExitContainer,
        answer=podlife.ContainerStatus,
    ),
    call(
        "publishPools",
        "POST",
        "/v1/pools",
        "publish",
        "Publish pools of devices for structured claims.",
        handlers.publish,
        body=Body.OBJECTS,
    ),
    call(
        "defineClasses",
        "POST",
        "/v1/device-classes",
        "define",
        "Define classes for structured claims.",
        handlers.define,
        body=Body.OBJECTS,
    ),
    call(
        "createClaims",
        "POST",
        "/v1/claims",
        "claim",
        "Create structured claims.",
        handlers.claim,
        body=Body.OBJECTS,
    ),
    call(
        "getEvents",
        "GET",
        "/v1/events",
        "events",
        "Read events, a line of JSON each; resume with the number of the last one.",
        handlers.events,
        query=shapes.EventQuery,
        answer=shapes.Event,
        kind=Kind.STREAM,
    ),
    call(
        "getCalls",
        "GET",
        "/v1/calls",
        "calls",
        "Read the calls between kubelet and plugins, a line of JSON each.",
        handlers.calls,
        query=shapes.CallQuery,
        answer=shapes.Call,
        kind=Kind.STREAM,
    ),
    call(
        "getPendingCalls",
        "GET",
        "/v1/calls/pending",
        "calls",
        "List calls that are not answered yet, and list streams that are open.",
        handlers.pending_calls,
        answer=shapes.PendingCallList,
    ),
    call(
        "callAllocate",
        "POST",
        "/v1/direct-calls/allocate",
        "allocate",
        "Ask a plugin to Allocate any devices, for no pod.",
        direct.allocate,
        body=direct.Allocate,
        answer=direct.Allocated,
    ),
    call(
        "callGetPreferredAllocation",
        "POST",
        "/v1/direct-calls/preferred",
        "preferred",
        "Ask a plugin which devices it prefers, for no pod.",
        direct.preferred,
        body=direct.GetPreferred,
        answer=direct.Preferred,
    ),
    call(
        "callPreStartContainer",
        "POST",
        "/v1/direct-calls/pre-start",
        "pre_start",
        "Ask a plugin for PreStartContainer, for no pod.",
        direct.pre_start,
        body=direct.PreStart,
    ),
    call(
        "callGetDevicePluginOptions",
        "POST",
        "/v1/direct-calls/options",
        "options",
        "Ask a plugin for its options.",
        direct.options,
        body=direct.GetOptions,
        answer=PluginOptions,
    ),
    call(
        "setFault",
        "POST",
        "/v1/faults",
        "faults",
        "Set a fault of the kubelet's side. An action without `at` is executed at once.",
        handlers.set_fault,
        body=shapes.SetFault,
        answer=shapes.Fault,
        status=HTTPStatus.CREATED,
    ),
    call(
        "listFaults",
        "GET",
        "/v1/faults",
        "faults",
        "List the faults that are set.",
        handlers.faults,
        answer=shapes.FaultList,
    ),
    call(
        "clearFaults",
        "DELETE",
        "/v1/faults",
        "faults",
        "Take faults back, all or those of a kind; whoever is held up goes on.",
        handlers.clear_faults,
        query=shapes.FaultQuery,
        answer=shapes.Cleared,
    ),
    call(
        "clearFault",
        "DELETE",
        "/v1/faults/{id}",
        "faults",
        "Take one fault back.",
        handlers.clear_fault,
        answer=shapes.Cleared,
    ),
    call(
        "waitForResource",
        "POST",
        "/v1/waits/resource",
        "wait_for_resource",
        "Wait until devices of a resource are allocatable.",
        handlers.wait_for_resource,
        body=shapes.ResourceWait,
        kind=Kind.WAIT,
    ),
    call(
        "waitForEvent",
        "POST",
        "/v1/waits/event",
        "wait_for_event",
        "Wait for an event.",
        handlers.wait_for_event,
        body=shapes.EventWait,
        answer=shapes.Event,
        kind=Kind.WAIT,
    ),
    call(
        "waitForCall",
        "POST",
        "/v1/waits/call",
        "wait_for_call",
        "Wait for a call between kubelet and plugin to end.",
        callwaits.wait_for_call,
        body=callwaits.CallWait,
        answer=shapes.Call,
        kind=Kind.WAIT,
    ),
    call(
        "getClock",
        "GET",
        "/v1/clock",
        "clock",
        "Read the kubelet's clock.",
        handlers.clock,
        answer=shapes.Clock,
    ),
    call(
        "advanceClock",
        "POST",
        "/v1/clock/advance",
        "clock",
        "Let time pass on a manual clock.",
        handlers.advance,
        body=shapes.Advance,
        answer=shapes.Clock,
    ),
    call(
        "getCheckpoint",
        "GET",
        "/v1/checkpoint",
        "checkpoint_path",
        "Show the checkpoint file as it is on disk.",
        handlers.checkpoint,
        answer=dict[str, Any],
    ),
)

NOT_HERE: Final[Mapping[str, str]] = {
    "settings": "given to the kubelet when it is made; of `run`, its flags",
    "manager": "the running kubelet's inside, for Python alone",
    "claims": "the manager of claims, for Python alone; publish, define and claim are here",
    "claim_devices": "for views of this process; an admission's containers tell the same",
    "has_pod": "whether `pod` would find one; over HTTP that answers 404",
    "telemetry": "what /healthz, /metrics and /pods tell, without a token: see `run --http`",
    "close": "ends the kubelet for good: whoever made it does that",
    "health_updates": "a queue of this process; events of kind device-health tell the same",
    "pod_status": "GET /pods of the kubelet's own HTTP server has it",
    "start_pod": "for nodes in a cluster; admit with start, and startContainer, are here",
    "stop_pod": "for nodes in a cluster; finish and deletePodGracefully are here",
    "restore": "for nodes in a cluster that another process takes over",
    "expect": "its steps may be functions of Python; waitForEvent and waitForCall, one by one",
    **{
        f"{name}_async": "the same for asyncio; each is here without its ending, or stands above"
        for name in (
            "admit",
            "expect",
            "finish",
            "reboot",
            "restart",
            "start_container",
            "terminate",
            "wait_for",
            "wait_for_event",
            "wait_for_resource",
        )
    },
    "reset": "for fixtures of Python that share a kubelet; its parts are here",
    "watch": "a list stream of its own; getCalls with follow has the lists that the kubelet gets",
    "wait_for": "asks a function of Python; the client does it with waitForEvent",
}
"""Members of MockKubelet without an operation, and why."""


def operation(name: str) -> Operation:
    """The row of that name."""
    return _BY_NAME[name]


_BY_NAME = {each.name: each for each in OPERATIONS}

_ABOUT: Final = About(
    "Control API of a mock kubelet",
    """\
Steers a mock kubelet: what `MockKubelet` does in Python, over HTTP on
`control.sock` in the kubelet's directory. Pods are named by UID. Answers may get new fields;
unknown fields and parameters of requests are rejected.""",
)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document as plain data. Nobody may change it."""
    return build(OPERATIONS, _ABOUT)
