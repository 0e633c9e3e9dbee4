"""Structured claims of a kubelet: what drivers, administrators and users write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.kubelet.pods.records import PodStore

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.claims.manager import ClaimManager

__all__ = ["ClaimObjects"]


class ClaimObjects:
    """Publishes, defines and claims; whoever inherits sets ``_claims`` and ``_pods``."""

    _claims: LazyClaims
    _pods: PodStore

    @property
    def claims(self) -> ClaimManager:
        """Pools, classes and claims of ``devmgmtproto.k8s.io``. They outlive restarts; what
        claims hold is kept in ``<root>/device_claims_state``."""
        return self._claims.manager

    def claim_devices(self, uid: str) -> dict[str, dict[str, tuple[str, ...]]]:
        """What a pod has of structured claims: container → claim → devices, as
        ``pool/device``. Raises RequestError for an unknown UID."""
        pod = self._pods.known(uid).pod
        return {
            str(container.name): self._claims.devices(pod, container.name)
            for container, _ in pod.all_containers()
            if container.claims
        }

    def publish(self, pool: ClaimSource) -> None:
        """A driver publishes pools: as dict, YAML text, path or object. One of the same name
        is replaced; nobody loses what is held of it.

        Raises InvalidObject with a line for each rule that one breaks, and ClaimsError if a
        pool belongs to another driver. Objects of other kinds are taken as well.
        """
        self._apply(pool)

    def define(self, device_class: ClaimSource) -> None:
        """An administrator defines classes; as ``publish``."""
        self._apply(device_class)

    def claim(self, claim: ClaimSource) -> None:
        """A user creates claims; as ``publish``. A pod gets them that names them in
        ``spec.resourceClaims``. Raises ClaimsError for a change of an allocated claim."""
        self._apply(claim)

    def _apply(self, source: ClaimSource) -> None:
        from devicemanager.claims.files import read_source

        self.claims.apply(read_source(source))
