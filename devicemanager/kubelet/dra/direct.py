"""Direct calls to a driver: prepare and unprepare claims without a pod, for tests of a driver."""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.core.dra.claim_infos import prepared_device
from devicemanager.core.dra.effects import Operation
from devicemanager.core.dra.errors import ClaimFetchError, DraError
from devicemanager.core.dra.model import PrepareResult, UnprepareResult
from devicemanager.core.dra.report import ClaimResult
from devicemanager.core.errors import RequestError
from devicemanager.kubelet.dra.manager import DraManager

__all__ = ["call_driver"]


def call_driver(
    manager: DraManager,
    operation: Operation,
    driver: str,
    claims: Iterable[str],
    endpoint: str | None,
) -> dict[str, ClaimResult]:
    """Call a driver to prepare or unprepare claims, and return the driver's results by claim UID.

    ``claims`` are names as ``NAMESPACE/NAME``, or as ``NAME`` in the namespace ``default``.
    ``endpoint`` selects an instance of the driver; None selects the instance that the kubelet would
    call. Raises RequestError for an unknown claim or driver, and RpcError if the call fails.
    """
    names = [_split(each) for each in claims]
    try:
        answer = manager.call(operation, driver, names, endpoint)
    except (ClaimFetchError, DraError) as error:
        raise RequestError(str(error)) from error
    assert isinstance(answer, dict)
    # Sorted, because a protobuf map has no order.
    return {uid: _result(driver, each) for uid, each in sorted(answer.items())}


def _split(claim: str) -> tuple[str, str]:
    namespace, slash, name = claim.rpartition("/")
    if not name or (slash and not namespace):
        raise RequestError(f"invalid claim {claim!r}: expected NAME or NAMESPACE/NAME")
    return namespace or "default", name


def _result(driver: str, found: PrepareResult | UnprepareResult) -> ClaimResult:
    devices = found.devices if isinstance(found, PrepareResult) else ()
    return ClaimResult(
        error=found.error, devices=tuple(prepared_device(driver, each) for each in devices)
    )
