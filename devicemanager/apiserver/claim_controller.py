"""Claim controller: create claims from templates, and release the claims of finished pods.

By default, the controller releases only claims that the scheduler of this package has allocated. A
finalizer marks these claims. Claims that a test has allocated stay allocated. With ``is_strict``,
the controller removes the reservations of finished and missing pods from all claims, as the
controller of a cluster does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.registry import is_terminal
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object

__all__ = ["ClaimController"]

_CLAIMS = "resourceclaims"


class ClaimController:
    """Controller that creates and releases the claims of pods. Not thread-safe."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self._seen: set[str] = set()
        """UIDs of all pods that the controller has seen."""

    def reconcile(self, server: FakeApiServer) -> None:
        """Create, release and delete the claims of the pods on the server."""
        pods = server.all("pods")
        self._seen |= {pod["metadata"]["uid"] for pod in pods}
        claims = server.all(_CLAIMS)
        if any(pod["spec"].get("resourceClaims") for pod in pods):
            _create_claims(server, pods, claims)
        if claims:
            running = {pod["metadata"]["uid"] for pod in pods if not is_terminal(pod)}
            for claim in claims:
                with suppress(StatusError):  # the claim was changed or deleted meanwhile
                    self._release(server, claim, running)

    def _release(self, server: FakeApiServer, claim: Object, running: set[str]) -> None:
        # Imported only if claims exist: a server without them starts faster.
        from devicemanager.claims.dra import pods as dra_pods

        is_ours = dra_pods.FINALIZER in (claim["metadata"].get("finalizers") or ())
        if is_ours or self._is_strict:
            gone = [
                each["uid"]
                for each in dra_pods.reserved_pods(claim)
                if each["uid"] not in running and (self._is_strict or each["uid"] in self._seen)
            ]
            if gone:
                claim = _change(
                    server, claim, lambda value: dra_pods.released(value, gone), "status"
                )
            if is_ours and not dra_pods.is_allocated(claim):
                claim = _change(server, claim, _unprotected)
        owner = dra_pods.owning_pod(claim)
        is_unused = not dra_pods.reserved_pods(claim) and owner in self._seen
        if is_unused and owner not in running and "deletionTimestamp" not in claim["metadata"]:
            server.delete(_CLAIMS, claim["metadata"]["name"], claim["metadata"]["namespace"])


def _create_claims(server: FakeApiServer, pods: Iterable[Object], claims: Iterable[Object]) -> None:
    from devicemanager.claims.dra import pods as dra_pods

    made = {(dra_pods.owning_pod(claim), dra_pods.entry_of(claim)): claim for claim in claims}
    for pod in pods:
        if is_terminal(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        namespace = pod["metadata"]["namespace"]
        for entry, name in dra_pods.missing_templates(pod):
            claim = made.get((pod["metadata"]["uid"], entry))
            template = server.get("resourceclaimtemplates", name, namespace)
            if claim is None and template is None:
                continue  # the template can be created later
            with suppress(StatusError):  # the pod was deleted meanwhile
                if claim is None and template is not None:
                    wanted = dra_pods.claim_from_template(pod, entry, template)
                    claim = server.create(_CLAIMS, wanted, namespace)
                if claim is not None:
                    _name_claim(server, pod, entry, claim["metadata"]["name"])


def _name_claim(server: FakeApiServer, pod: Object, entry: str, name: str) -> None:
    def named(value: Object) -> Object:
        statuses = value["status"].get("resourceClaimStatuses") or []
        value["status"]["resourceClaimStatuses"] = [
            *statuses,
            {"name": entry, "resourceClaimName": name},
        ]
        return value

    metadata = pod["metadata"]
    server.change("pods", metadata["name"], named, metadata["namespace"], subresource="status")


def _unprotected(claim: Object) -> Object:
    from devicemanager.claims.dra import pods as dra_pods

    if dra_pods.is_allocated(claim):  # meanwhile
        return claim
    finalizers = claim["metadata"].get("finalizers") or ()
    claim["metadata"]["finalizers"] = [each for each in finalizers if each != dra_pods.FINALIZER]
    return claim


def _change(
    server: FakeApiServer, claim: Object, change: Callable[[Object], Object], subresource: str = ""
) -> Object:
    metadata = claim["metadata"]
    return server.change(
        _CLAIMS, metadata["name"], change, metadata["namespace"], subresource=subresource
    )
