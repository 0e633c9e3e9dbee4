"""What happens to the containers of a pod after its admission, as methods of a kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from devicemanager.core.podstatus.containers import STOPPED, ContainerStatus
from devicemanager.core.podstatus.phase import Phase
from devicemanager.kubelet.arguments import check_exit_codes, parser
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.protocols import Served

if TYPE_CHECKING:
    from devicemanager.core.podstatus.conditions import Gates
    from devicemanager.core.podstatus.status import PodStatus
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.objects.manifests import Source

__all__ = ["PodLife"]


class PodLife:
    """Containers that end, and pods that are deleted."""

    _life: Served
    _pods: PodStore

    def start_pod(self, uid: str) -> None:
        """Start every container of an admitted pod that was never started, in order; one that
        cannot be started waits, and an init container that cannot stops the rest.

        Raises RequestError for an unknown UID, and for a pod that has ended or is to be
        deleted.
        """
        self._life.serving().workers.start(uid)

    def stop_pod(
        self,
        uid: str,
        exit_code: int = STOPPED,
        *,
        reason: str = "",
        message: str = "",
        disruption: str = "",
    ) -> Phase:
        """The kubelet ends the pod: its containers are told to, and end with ``exit_code``. Its
        devices are free; it stays known, Succeeded or Failed, until ``terminate``.

        With a ``reason``, such as ``Evicted``, it is Failed for that reason, whatever its
        containers did. ``disruption`` is the message of the condition ``DisruptionTarget``.
        Nothing happens to a pod that has ended. Raises RequestError for an unknown UID.
        """
        check_exit_codes([exit_code])
        workers = self._life.serving().workers
        return workers.stop(uid, exit_code, reason=reason, message=message, disruption=disruption)

    def restore(
        self,
        manifest: Source,
        devices: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
        *,
        statuses: Mapping[str, ContainerStatus] | None = None,
        start_time: float | None = None,
    ) -> Admission:
        """A pod that another kubelet ran on this node before, and of which this one knows
        nothing: it goes on with the devices that it holds (container → resource → ids), and
        with its containers as they are. None for either: what the checkpoint says, else it is
        admitted anew, and all its containers run.

        A pod whose device somebody else holds is rejected. Raises as ``admit`` does.
        """
        workers = self._life.serving().workers
        return workers.restore(parser()(manifest), devices or {}, statuses, start_time)

    def pod_status(self, uid: str, gates: Gates | None = None) -> PodStatus:
        """The pod's status as the kubelet tells it to the API. ``gates`` are its readiness
        gates. Raises RequestError for an unknown UID."""
        from devicemanager.kubelet.pods.records import api_status

        resources = self._life.serving().workers.allocated_resources_status(uid)
        record = self._pods.known(uid)
        with self._pods.lock:
            return api_status(record, resources, gates)

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
        container, one that does not run, and an exit code that is no number.
        """
        check_exit_codes([exit_code])
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
