"""Errors and pressures of a node, and the pods that the node rejects because of them.

Follows the kubelet's runtime state (``pkg/kubelet/runtime.go``), and the admit handlers for
evictions and shutdowns.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final

from devicemanager.client.protocol import JsonObject
from devicemanager.cluster.pods.predicates import tolerates
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.status import QosClass, qos_class
from devicemanager.core.rejection import Rejected

__all__ = ["RuntimeState"]

_SHUTTING_DOWN: Final = "node is shutting down"
_SHUTDOWN_REJECTION: Final = "Pod was rejected as the node is shutting down."
_MEMORY_TAINT: Final = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_CRITICAL: Final = 2_000_000_000
"""Lowest priority of critical pods (``SystemCriticalPriority``)."""
_NONE: Final[frozenset[Pressure]] = frozenset()


class RuntimeState:
    """State of one node: errors that make it not ready, and pressure conditions. Thread-safe."""

    __slots__ = ("_errors", "_lock", "_pressures")

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._errors: dict[str, str] = {}
        self._pressures = _NONE

    def set_error(self, cause: str, error: str) -> None:
        """Make the node not ready because of ``cause``, with the message ``error``.

        An empty message clears the cause. The node is ready when all causes are cleared.
        """
        with self._lock:
            if error:
                self._errors[cause] = error
            else:
                self._errors.pop(cause, None)

    def shut_down(self) -> None:
        """Make the node not ready because it shuts down."""
        self.set_error("shutdown", _SHUTTING_DOWN)

    def set_pressures(self, pressures: Collection[Pressure]) -> None:
        """Replace the pressure conditions of the node."""
        with self._lock:
            self._pressures = frozenset(pressures)

    @property
    def errors(self) -> tuple[str, ...]:
        """The reasons why the node is not ready; empty if it is ready."""
        with self._lock:
            return tuple(self._errors.values())

    @property
    def pressures(self) -> frozenset[Pressure]:
        """The pressure conditions of the node."""
        with self._lock:
            return self._pressures

    def admit(self, pod: Pod, object_: JsonObject) -> Rejected | None:
        """Return the rejection of a pod because of pressure or a shutdown; None to admit the pod.

        Follows ``evictionManager.Admit`` (pkg/kubelet/eviction) and the shutdown manager's
        ``Admit`` (v1.32).
        """
        present = self.pressures
        pressures = [str(each) for each in Pressure if each in present]
        if pressures and (object_["spec"].get("priority") or 0) < _CRITICAL:
            # If memory is the only pressure, only BestEffort pods without a toleration are
            # rejected.
            is_exempt = qos_class(pod) is not QosClass.BEST_EFFORT or any(
                tolerates(each, _MEMORY_TAINT) for each in object_["spec"].get("tolerations") or ()
            )
            if not (is_exempt and pressures == [Pressure.MEMORY]):
                listed = " ".join(pressures)
                return Rejected("Evicted", f"The node had condition: [{listed}]. ")
        if _SHUTTING_DOWN in self.errors:
            return Rejected("NodeShutdown", _SHUTDOWN_REJECTION)
        return None
