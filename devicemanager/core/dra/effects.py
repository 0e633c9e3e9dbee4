"""What the DRA manager's generators need from their caller: the effects and their answers.

The caller runs a generator under its lock and carries out each effect without the lock:

| effect | sent into the generator | or thrown into it |
|---|---|---|
| ``FetchClaim`` | ``ResourceClaim`` | ``ClaimFetchError`` |
| ``CallDriver`` for prepare | map of uid to ``PrepareResult`` | ``RpcError`` |
| ``CallDriver`` for unprepare | map of uid to ``UnprepareResult`` | ``RpcError`` |
| ``WriteState`` | None | ``StateWriteError`` |
| ``AwaitClaims`` | None, once ``ClaimCache.is_preparing`` is false for all of its claims | - |

If a generator is closed instead, such as by an interrupt, the references to the pod stay in the
cache, as after a killed call.
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
    """A call to a driver."""

    PREPARE = "NodePrepareResources"
    UNPREPARE = "NodeUnprepareResources"


@attrs.frozen
class FetchClaim:
    """Request to get a ResourceClaim from the API server, not from a cache."""

    namespace: str
    name: str


@attrs.frozen
class CallDriver:
    """Request to call one driver instance, once, with all claims.

    The deadline is ``CALL_TIMEOUT``. An instance that was deregistered in the meantime fails the
    call with ``Canceled`` and ``grpc: the client connection is closing``.
    """

    operation: Operation
    driver: DriverName
    instance: InstanceId
    service: str
    """The service to call: ``v1``, ``v1beta1`` or ``v1alpha4``."""
    claims: tuple[ClaimRef, ...]


@attrs.frozen
class WriteState:
    """Request to write the state file; it must be on disk when the generator continues.

    ``claims`` is the content: all claims, sorted by namespace and name. If generators run at the
    same time, the file may be written with the newest claims of the cache instead.
    """

    claims: tuple[ClaimInfo, ...]


@attrs.frozen
class AwaitClaims:
    """Request to wait until no other pod prepares one of the claims. Never yielded with quirk
    Q37."""

    claims: tuple[ClaimKey, ...]


Effect = FetchClaim | CallDriver | WriteState | AwaitClaims
Answer = ResourceClaim | Mapping[str, PrepareResult] | Mapping[str, UnprepareResult] | None
Steps = Generator[Effect, Answer, None]
"""A generator of the DRA manager. It returns nothing; failures raise ``DraError``."""
