"""The kubelet's messages, character by character.

They are exact because users search logs and events for them, and because recorded scenarios are
compared with them. Source: pkg/kubelet/cm/devicemanager, pkg/kubelet/lifecycle and
pkg/kubelet/cm/topologymanager of Kubernetes v1.32. The messages below the function
``go_quoted`` in this file are devicemanager's own.
"""

from typing import Any, Final

# Reasons and messages of rejected pods.
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
OUT_OF = "OutOf{resource}"
SIDECAR_FORBIDDEN = "InitContainerRestartPolicyForbidden"
SIDECAR = 'Init container "{container}" may not have a non-default restartPolicy'
REJECTED = "Pod was rejected: {message}"

ALLOCATE_FAILED = "Allocate failed due to {error}, which is unexpected"
TOPOLOGY_LOCALITY = "Resources cannot be allocated with Topology locality"
POD_LEVEL_LOCALITY = (
    "Pod Scope pod with pod-level resources failed admission {scope} topology manager"
)
NODE_TOO_SMALL = (
    "Node didn't have enough resource: {resource}, "
    "requested: {requested}, used: {used}, capacity: {capacity}"
)

# In-place resize (pkg/kubelet/allocation).
NODE_TOO_SMALL_FOR_RESIZE = (
    "Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
)
STATIC_RESIZE = "Resize is infeasible for Guaranteed Pods {how}"

# Allocation (``devicesToAllocate`` and ``allocateContainerResources``, manager.go; endpoint.go).
CHANGED_REQUEST = (
    'pod "{pod}" container "{container}" changed request for resource "{resource}" '
    "from {allocated} to {required}"
)
UNREGISTERED = "cannot allocate unregistered device {resource}"
UNREGISTERED_BEFORE = "can't allocate unregistered device {resource}"
"""Older text of the error ``UNREGISTERED``, in kubelets up to v1.25.9, v1.26.4 and v1.27.1."""
NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {resource}"
ALLOCATED_UNHEALTHY = (
    "previously allocated devices are no longer healthy; "
    "cannot allocate unhealthy devices {resource}"
)
UNAVAILABLE = (
    "requested number of devices unavailable for {resource}. "
    "Requested: {requested}, Available: {available}"
)
UNKNOWN_PLUGIN = "unknown Device Plugin {resource}"
NO_CONTAINER_RESPONSE = "no containers return in allocation response {reply}"
STOPPED_ENDPOINT = "endpoint {endpoint} has been stopped"
PREFERRED_FAILED = "device plugin GetPreferredAllocation rpc failed with err: {error}"
PRE_START_FAILED = "device plugin PreStartContainer rpc failed with err: {error}"
PRE_START_NO_ENDPOINT = "endpoint not found in cache for a registered resource: {resource}"
PRE_START_NO_DEVICES = (
    "no devices found allocated in local cache for pod {pod}, container {container}, "
    "resource {resource}"
)
CHECKPOINT_FAILED = 'failed to write checkpoint file "kubelet_internal_checkpoint": {error}'
RPC_ERROR = "rpc error: code = {code} desc = {description}"

# Registration (plugin/v1beta1), and calls to plugins.
BAD_VERSION = (
    'requested API version "{version}" is not supported by kubelet. '
    'Supported version is ["v1beta1"]'
)
BAD_RESOURCE_NAME = 'the ResourceName "{resource}" is invalid'
WATCHED_NO_HANDLER = (
    "RegisterPlugin error -- no handler registered for plugin type: {type} at socket {socket}"
)
WATCHED_INVALID = "RegisterPlugin error -- plugin validation failed with err: {error}"
WATCHED_BAD_VERSION = WATCHED_INVALID.format(
    error="manager version, v1beta1, is not among plugin supported versions [{versions}]"
)
WATCHED_BAD_RESOURCE_NAME = WATCHED_INVALID.format(
    error=f"invalid name of device plugin socket: {BAD_RESOURCE_NAME}"
)
WATCHED_FAILED = "RegisterPlugin error -- plugin registration failed with err: {error}"
DEADLINE_EXCEEDED = "context deadline exceeded"
DIAL_FAILED = "failed to dial device plugin: {error}"
NOT_CONNECTED = (
    'connection error: desc = "transport: Error while dialing: dial unix {path}: connect: {error}"'
)
ALREADY_CONNECTED = "device plugin already connected: {socket}"
OPTIONS_FAILED = "failed to get device plugin options: {error}"
REGISTRATION_SERVER_FAILED = (
    "device plugin registration gRPC server failed and no device plugins can register"
)
REGISTRATION_ERROR = "device plugin registration error: " + REGISTRATION_SERVER_FAILED + ": {error}"
"""Error of the check ``device-plugin`` of ``/healthz``, in kubelets from v1.32.11, v1.33.7, v1.34.3
and v1.35 on."""
FAILED_PREPARE = "FailedPrepareDynamicResources"
"""Reason of the event for a pod whose claims could not be prepared (pkg/kubelet/events/event.go,
v1.32)."""
PREPARE_FAILED = "Failed to prepare dynamic resources: {error}"
BAD_SOCKET_PATH = "bad socketPath, must be an absolute path: {path}"


_ESCAPES: Final = {
    "\\": "\\\\",
    '"': '\\"',
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def go_printed(value: Any) -> str:
    """Return JSON data as Go's ``%+v`` prints it, such as ``map[a:[1 2] b:true]``."""
    match value:
        case dict():
            # Go prints the keys of a map in sorted order.
            return f"map[{' '.join(f'{key}:{go_printed(value[key])}' for key in sorted(value))}]"
        case list() | tuple():
            return f"[{' '.join(map(go_printed, value))}]"
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
    return str(value)


def go_quoted(text: str) -> str:
    """Return a text as Go's ``%q`` prints it."""
    return f'"{"".join(_ESCAPES.get(each) or _escaped(each) for each in text)}"'


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


ALREADY_IN_USE = "device {device} of {resource} is already in use by pod {pod}"
UNLISTED_DEVICES = (
    "the plugin no longer lists allocated devices ({devices}): a kubelet from v1.34 on panics when "
    "it admits their pods again; list the devices as Unhealthy"
)
NO_SUCH_NUMA_NODE = (
    "a device is on NUMA node {node}, which this machine does not have: add the node to the "
    "topology (Settings.numa, --numa)"
)
