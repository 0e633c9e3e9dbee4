"""Read ResourceClaims for the kubelet of one node, and write the status of their devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.client.errors import ApiError, ClientClosing, Conflict, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.core.dra.model import ClaimInfo
from devicemanager.objects.status.times import timestamp

__all__ = ["NodeClaims"]


class NodeClaims:
    """Reader of ResourceClaims for one node, and writer of ``status.devices``. Thread-safe."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim. Raises ClaimFetchError with the API server's text."""
        node = self._node
        try:
            path = self._path(namespace, name)
            return node.api.request("GET", path, user=node.user)
        except ApiError as error:
            raise ClaimFetchError(error.message or str(error)) from error
        except ClientClosing:
            # Go's ``context.Canceled``, the error of a request when the kubelet stops.
            raise ClaimFetchError("context canceled") from None

    def _path(self, namespace: str, name: str, suffix: str = "") -> str:
        rest = f"namespaces/{namespace}/resourceclaims/{name}{suffix}"
        return self._node.features.resource_group.path(self._node.api, rest)

    def write_devices(
        self, claims: Iterable[ClaimInfo], unhealthy: Mapping[str, frozenset[str]]
    ) -> None:
        """Write ``status.devices`` of prepared claims.

        ``unhealthy`` maps the name of a driver to the names of its unhealthy devices.
        """
        for claim in claims:
            try:
                self._write(claim, unhealthy)
            except (NotFound, Conflict):
                continue  # the claim was deleted, or another client has changed it
            except ApiError as error:
                if "metadata.uid: " in error.message:
                    continue  # the claim was deleted, and another claim has its name
                self._node.say(
                    f"cannot write status.devices of ResourceClaim {claim.namespace}/{claim.name}: "
                    f"{error}"
                )

    def _write(self, claim: ClaimInfo, unhealthy: Mapping[str, frozenset[str]]) -> None:
        node = self._node
        now = timestamp(node.clock.time())
        devices = [
            _device(driver, each.pool, each.device, each.share_id, now, is_ready)
            for driver, state in claim.drivers.items()
            for each in state.devices or ()
            for is_ready in [each.device not in unhealthy.get(driver, ())]
        ]
        # The UID makes the request fail if another claim now has the name.
        body = {"metadata": {"uid": claim.uid}, "status": {"devices": devices}}
        path = self._path(claim.namespace, claim.name, "/status")
        # Not impersonating the node: a driver has its own identity, and nodes may not write claims.
        node.api.request("PATCH", path, body, patch="merge")


def _device(
    driver: str, pool: str, device: str, share_id: str | None, now: str, is_ready: bool
) -> JsonObject:
    condition = {
        "type": "Ready",
        "status": "True" if is_ready else "False",
        "reason": "Healthy" if is_ready else "Unhealthy",
        "message": "",
        "lastTransitionTime": now,
    }
    made: JsonObject = {
        "driver": driver,
        "pool": pool,
        "device": device,
        "conditions": [condition],
    }
    return made if share_id is None else {**made, "shareID": share_id}
