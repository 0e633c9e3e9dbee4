"""The exact messages of the kubelet about claims and drivers.

Source: pkg/kubelet/cm/dra and k8s.io/dynamic-resource-allocation/resourceclaim. ``Wording`` has the
messages that differ between versions.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.core.versions.table import DraWording

# Names of claims (``resourceclaim.Name``).
NOT_CREATED = 'pod "{pod}": ResourceClaim not created yet'
NO_SOURCE = 'pod "{pod}", spec.resourceClaim "{claim}": none of the supported fields are set'

DRIVER_NAME_EMPTY = "DRA driver name is empty"
OLD_CLAIM = (
    "old ResourceClaim with same name {claim} and different UID {uid} still exists "
    "(previous pod force-deleted?!)"
)
BEING_UNPREPARED = "ResourceClaim {claim} is being unprepared"
SKIP_GATE_OFF = (
    "ResourceClaim {claim}: DRAOptionalNodeOperations feature gate is disabled on kubelet"
)
NEITHER_OWNER = (
    "ResourceClaim {key} was not created for Pod {pod} "
    "(neither Pod nor PodGroup {group} is the owner)"
)
UNKNOWN_UID = "{method} returned result for unknown claim UID {uid}"
PERMANENT = "{method} failed permanently for ResourceClaim {claim}: {error}"
"""Message for a permanent error. KEP-5322 requires such a message, but does not specify its
text."""
SAVE = "could not save checkpoint dra_manager_state: {error}"

# PodResources (pkg/kubelet/cm/dra/manager.go GetContainerClaimInfos).
NO_INFORMATION_EXTENDED = "unable to get claim info for claim {claim} in namespace {namespace}"

# Registration (plugin/dra_plugin_manager.go).
INVALID_SERVICES = (
    "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {error}"
)
NO_SERVICES = "empty list of supported gRPC services (aka supported versions)"
NO_COMMON_SERVICE = (
    "none of services supported by the plugin ({offered}) are supported by the kubelet ({known})"
)
ENDPOINT_TAKEN = "endpoint {endpoint} already registered for DRA driver plugin {driver}"
INVALID_SERVICES_BEFORE = "invalid versions of plugin {driver}: {error}"
"""Message for a driver with invalid services up to v1.33, in place of ``INVALID_SERVICES``."""

CONNECTION_CLOSING = "grpc: the client connection is closing"
"""Message of a call that fails with the gRPC code Canceled, because the driver instance was
deregistered during the call."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Wording:
    """Messages that differ between kubelet versions. The defaults are the messages since v1.36."""

    prepare: str = "prepare dynamic resources: {error}"
    """Prefix of all errors that ``prepare`` raises."""
    unprepare: str = "unprepare dynamic resources: {error}"
    """Prefix of all errors that ``unprepare`` raises."""
    prepare_name: str = "{error}"
    """Message of the error that ``names.claim_name`` raises when claims are prepared."""
    unprepare_name: str = "{error}"
    """Message of the error that ``names.claim_name`` raises when claims are unprepared."""
    container_name: str = "{error}"
    """Message of the error that ``names.claim_name`` raises when a container is created."""
    podresources_name: str = "{error}"
    """Message of the error that ``names.claim_name`` raises in a call of PodResources."""
    fetch: str = "fetch ResourceClaim {claim}: {error}"
    not_owner: str = "ResourceClaim {key} was not created for Pod {pod} (Pod is not owner)"
    not_reserved: str = (
        "pod {name} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})"
    )
    not_allocated: str = "ResourceClaim {claim}: not allocated"
    no_driver: str = "DRA driver {driver} is not registered"
    no_driver_name: str = DRIVER_NAME_EMPTY
    prepare_driver: str = "{error}"
    """Message of the error if a driver has no registered instance when claims are prepared. The
    placeholder ``error`` is the text of the error that ``Drivers.lookup`` raises. The placeholder
    ``driver`` is optional."""
    unprepare_driver: str = "{error}"
    """Message of the error if a driver has no registered instance when claims are unprepared. The
    placeholder ``error`` is the text of the error that ``Drivers.lookup`` raises. The placeholder
    ``driver`` is optional."""
    call: str = "{method}: {error}"
    entry: str = "{method} failed for ResourceClaim {claim}: {error}"
    skipped: str = "{method} skipped {count} ResourceClaims"
    write_before: str = "checkpoint ResourceClaim cache: {error}"
    """Error if the state file cannot be written before the calls to drivers."""
    write_after: str = "checkpoint ResourceClaim state: {error}"
    """Error if the state file cannot be written after the calls to drivers."""
    read: str = (
        "create ResourceClaim cache: GetOrCreate() on checkpoint state: "
        "failed to get checkpoint dra_manager_state: {error}"
    )
    """Error at the start of the kubelet if its state file is corrupt."""
    entries: str = "create ResourceClaim cache: GetEntries() on checkpoint: {error}"
    """Error at the start of the kubelet if the claims in its state file cannot be decoded."""
    no_info: str = (
        "internal error: unable to get claim info for ResourceClaim {claim} "
        "in namespace {namespace}"
    )
    no_info_extended: str = no_info
    """Error for the claim of a pod's extended resources if this claim is not in the cache."""
    no_information: str = "unable to get information for ResourceClaim {claim}"
    """Error of PodResources for a claim that is not in the cache (``GetContainerClaimInfos``)."""


_LOWER_NOT_OWNER = "ResourceClaim {key} was not created for pod {pod} (pod is not owner)"

WORDINGS: Mapping[DraWording, Wording] = {
    DraWording.V1_36: Wording(),
    DraWording.V1_34: Wording(
        not_owner=_LOWER_NOT_OWNER,
        no_info="internal error: unable to get claim info for ResourceClaim {claim}",
        no_info_extended=NO_INFORMATION_EXTENDED,
    ),
    DraWording.V1_32: Wording(
        prepare="{error}",
        unprepare="{error}",
        prepare_name="prepare resource claim: {error}",
        unprepare_name="unprepare resource claim: {error}",
        container_name="list resource claims: {error}",
        podresources_name="determine resource claim information: {error}",
        fetch="failed to fetch ResourceClaim {claim} referenced by pod {name}: {error}",
        not_owner=_LOWER_NOT_OWNER,
        not_reserved=(
            "pod {name}({pod_uid}) is not allowed to use resource claim {claim}({claim_uid})"
        ),
        not_allocated="locked cache operation: claim {key}: not allocated",
        no_driver="plugin name {driver} not found in the list of registered DRA plugins",
        no_driver_name="plugin name is empty",
        prepare_driver="failed to get gRPC client for driver {driver}: {error}",
        unprepare_driver="get gRPC client for DRA driver {driver}: {error}",
        call="{method} failed: {error}",
        entry="{method} failed for claim {key}: {error}",
        skipped="{method} left out {count} claims",
        write_before="locked cache operation: failed to checkpoint claimInfo state: {error}",
        write_after="locked cache operation: failed to checkpoint claimInfo state: {error}",
        read=(
            "failed to create claimInfo cache: error calling GetOrCreate() on checkpoint state: "
            "failed to get checkpoint dra_manager_state: {error}"
        ),
        entries=(
            "failed to create claimInfo cache: error calling GetEntries() on checkpoint: {error}"
        ),
        no_info=f"locked cache operation: {NO_INFORMATION_EXTENDED}",
        no_information=f"locked cache operation: {NO_INFORMATION_EXTENDED}",
    ),
}
"""Messages by kubelet version. ``Behaviour.dra_wording`` selects the messages of a version."""


def start_error(part: str, error: str, wording: Wording) -> str:
    """Return the error with which the kubelet fails to start if its state file is invalid.

    ``part`` is the invalid part of the file: ``data`` if the claims in the file cannot be decoded,
    ``file`` in all other cases. ``error`` is the cause.
    """
    return (wording.entries if part == "data" else wording.read).format(error=error)
