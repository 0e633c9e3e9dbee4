"""What happens to the containers of a pod after its admission, as methods of ``MockKubelet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.core.podstatus.containers import ContainerStatus
from devicemanager.pods.records import PodStore

if TYPE_CHECKING:
    from devicemanager.kubelet.lifecycle import Lifecycle

__all__ = ["PodLife"]


class PodLife:
    """Containers that end, and pods that are deleted."""

    _life: Lifecycle
    _pods: PodStore

    def exit_container(
        self, uid: str, container: str, exit_code: int = 0, *, reason: str = ""
    ) -> ContainerStatus:
        """A running container ends by itself, with this exit code and a reason such as
        ``OOMKilled`` (none given: ``Completed`` for 0, else ``Error``).

        By the pod's restartPolicy the kubelet starts it again, with the same devices and
        PreStartContainer where the plugin asks for it: at once, then after 10 s, 20 s and so
        on up to 5 min by the kubelet's clock, and from the beginning once it has run for more
        than 10 min. Or it is the last one: the pod has Succeeded or Failed then, and its
        devices are free.

        Returns the container's status after that. Raises RequestError for an unknown pod or
        container, or one that does not run.
        """
        record = self._pods.known(uid)
        known, _ = record.container(container)
        self._life.serving().workers.life.exited(uid, container, exit_code, reason)
        return record.status(known.name)

    def delete(self, uid: str, grace_period: float | None = None) -> None:
        """The pod is to be deleted: its containers are told to end, and nothing is started
        any more. It keeps its devices until all have ended (``exit_container``), or are
        killed after the grace period, in seconds by the kubelet's clock: by default its
        ``terminationGracePeriodSeconds``, and 1 at least. Then it is gone, as after
        ``terminate``. A second call may only shorten the period.

        Raises RequestError for an unknown UID.
        """
        if grace_period is None:
            grace_period = self._pods.known(uid).pod.termination_grace_period
        self._life.serving().workers.life.delete(uid, grace_period)

    def container_statuses(self, uid: str) -> dict[str, ContainerStatus]:
        """The pod's containers by name, init containers first: each with its state (waiting,
        running or terminated), how it ended before, and how often it was started again.

        Raises RequestError for an unknown UID.
        """
        record = self._pods.known(uid)
        with self._pods.lock:
            return {
                str(container.name): record.status(container.name)
                for container, _ in record.pod.all_containers()
            }
