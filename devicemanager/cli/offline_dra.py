"""ResourceClaims of DRA for ``devicemanager explain``, read from files."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from devicemanager.claims.dra import Node
from devicemanager.cli.dra_files import Object, located_objects
from devicemanager.cli.dra_objects import DraObjects
from devicemanager.cli.dra_pods import PodExplanation, explain_pod
from devicemanager.cli.files import STANDARD_INPUT
from devicemanager.cli.options import CommandError
from devicemanager.core.pods import Pod
from devicemanager.kubelet.pods.admission import Admission

__all__ = ["OfflineDra", "has_dra_objects"]

_GROUP = "resource.k8s.io/"
_REASON = "Unschedulable"
"""Reason of the condition PodScheduled (pkg/apis/core/types.go, v1.36)."""


def has_dra_objects(paths: Sequence[str]) -> bool:
    """True if files have objects of resource.k8s.io. Raises CommandError and OSError.

    Standard input (``-``) is not read.
    """
    # Standard input can be read only once, and the objects are read after this test.
    files = [path for path in paths if path != STANDARD_INPUT]
    return any(
        str(each.get("apiVersion", "")).startswith(_GROUP) for _, each in located_objects(files)
    )


@attrs.frozen
class OfflineDra:
    """Slices, classes and claims of one node, and the manifests of pods.

    It has the methods of ``OfflineClaims`` that ``devicemanager explain`` uses.
    """

    objects: DraObjects
    node: Node
    _before: dict[str, list[Object]] = attrs.field(factory=dict)
    """All claims as they were before a pod got its claims, by the UID of the pod."""

    @classmethod
    def load(cls, paths: Sequence[str], manifests: Sequence[str], node: str | None) -> OfflineDra:
        """Read the objects in the files and directories ``paths`` and in the pods' files
        ``manifests``.

        ``node`` is the name of the node; None selects the only node of the objects. Raises
        CommandError and OSError.
        """
        # A manifest is read twice: as a pod for the kubelet, and as an object of the API.
        if STANDARD_INPUT in manifests:
            raise CommandError("a pod with ResourceClaims must be in a file, not standard input")
        objects = DraObjects.read([*paths, *manifests])
        return cls(objects, objects.node(node))

    def explain_pod(self, pod: Pod) -> tuple[PodExplanation, Admission | None]:
        """Allocate a pod's claims. Return a pair: the explanation, and the pod's rejection.

        The explanation has the devices of the claims, or the reasons why the claims do not fit. The
        rejection is a failed ``Admission``, although a scheduler would leave the pod Pending. It is
        None if all claims fit.
        """
        # A copy, because ``explain_pod`` appends the new claims to the list.
        self._before[pod.uid] = list(self.objects.claims)
        found = explain_pod(self.objects, self._manifest(pod), self.node)
        if found.fits:
            return found, None
        message = f"pod {found.pod} is not scheduled: its ResourceClaims do not fit"
        return found, Admission(pod, False, _REASON, message)

    def _manifest(self, pod: Pod) -> Object:
        return self.objects.pod(f"{pod.namespace}/{pod.name}")

    def end(self, pod: Pod) -> None:
        """Release the claims that were allocated for a pod."""
        self.objects.claims[:] = self._before.pop(pod.uid, self.objects.claims)
