"""Effects: what the generators of the DRA manager ask their caller to do.

The caller runs a generator under its lock and carries out each effect without the lock:

| effect | sent into the generator | or thrown into it |
|---|---|---|
| ``FetchClaim`` | ``ResourceClaim`` | ``ClaimFetchError`` |
| ``CallDriver`` for prepare | ``PrepareResult`` by claim UID | ``RpcError`` |
| ``CallDriver`` for unprepare | ``UnprepareResult`` by claim UID | ``RpcError`` |
| ``WriteState`` | None | ``StateWriteError`` |
| ``AwaitClaims`` | None, when ``ClaimCache.is_preparing`` is False for all the claims | - |

If the caller closes ``prepare`` early, for example after an interrupt, the cache still records
which claims the pod uses. Therefore the claims can be unprepared later.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from enum import StrEnum

import attrs

from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimKey,
    ClaimRef,
    DriverName,
    InstanceId,
    PrepareResult,
    ResourceClaim,
    UnprepareResult,
)

CALL_TIMEOUT = 45.0
"""Deadline of each call to a driver, in seconds (``PluginClientTimeout``, plugin/dra_plugin.go)."""


class Operation(StrEnum):
    """gRPC methods of a DRA driver."""

    PREPARE = "NodePrepareResources"
    UNPREPARE = "NodeUnprepareResources"


@attrs.frozen
class FetchClaim:
    """Request to get a ResourceClaim from the API server, not from a cache."""

    namespace: str
    name: str


@attrs.frozen
class CallDriver:
    """Request to call one driver instance once, for all claims in ``claims``.

    The deadline is ``CALL_TIMEOUT``. If the instance is deregistered before the call ends, the call
    fails with the code ``Canceled`` and the message ``grpc: the client connection is closing``.
    """

    operation: Operation
    driver: DriverName
    instance: InstanceId
    service: str
    """The service to call: ``v1``, ``v1beta1`` or ``v1alpha4``."""
    claims: tuple[ClaimRef, ...]


@attrs.frozen
class WriteState:
    """Request to write the state file. The file must be on disk before the generator continues.

    ``claims`` is the content: all claims, sorted by namespace and name. If other generators have
    changed the cache since the request, the newest claims of the cache may be written instead.
    """

    claims: tuple[ClaimInfo, ...]


@attrs.frozen
class AwaitClaims:
    """Request to wait until no other generator prepares these claims.

    Generators do not make this request with quirk Q37, a kubelet bug: two pods then prepare a
    shared claim at the same time.
    """

    claims: tuple[ClaimKey, ...]


Effect = FetchClaim | CallDriver | WriteState | AwaitClaims
Answer = ResourceClaim | Mapping[str, PrepareResult] | Mapping[str, UnprepareResult] | None
Steps = Generator[Effect, Answer, None]
"""A generator of the DRA manager. It yields effects and returns nothing; failures raise
``DraError``."""
