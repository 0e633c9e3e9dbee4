"""Mirror pods: what the API shows of pods that the kubelet has from elsewhere.

A pod that did not come from the API, but from a directory of manifests or by ``admit``, is a
static pod of its node. The API gets a likeness of it, which decides nothing: devices stay under
the static pod's UID, and a likeness that somebody deletes is made again
(``pkg/kubelet/pod/mirror_client.go``, v1.32).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import attrs

from devicemanager.cluster.client.api import pod_path
from devicemanager.cluster.client.errors import ApiError, Conflict, Forbidden, NotFound
from devicemanager.cluster.client.protocol import JsonObject, Priority
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.cluster.pods.state import MIRROR, made_up_ip
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.podstatus.merge import status_patch
from devicemanager.objects.status.node import node_reference
from devicemanager.objects.status.podstatus import pod_object, status_object
from devicemanager.objects.status.times import timestamp

__all__ = ["Mirrors"]

_SOURCE: Final = "kubernetes.io/config.source"
_SEEN: Final = "kubernetes.io/config.seen"
_HASH: Final = "kubernetes.io/config.hash"


@attrs.define(eq=False)
class _Mirror:
    """The likeness of one static pod. All but ``is_queued`` belongs to the lane's thread for the
    static pod's UID."""

    namespace: str
    name: str
    uid: str = ""
    """Of the likeness; empty while there is none."""
    digest: int = 0
    is_queued: bool = False


class Mirrors:
    """The mirror pods of one node. May be called from any thread."""

    __slots__ = ("_closed", "_lock", "_mirrors", "_node", "_owner")

    def __init__(
        self,
        node: NodeContext,
        owner: Callable[[], str],
    ) -> None:
        """``owner`` is the UID of the Node once it has one."""
        self._node = node
        self._owner = owner
        # Guards the fields below, and ``is_queued``.
        self._lock = threading.Lock()
        self._mirrors: dict[str, _Mirror] = {}
        self._closed = False

    # -- what the API tells ---------------------------------------------------------------

    def taken(self, object_: JsonObject) -> None:
        """There is a mirror pod on the node."""
        metadata = object_["metadata"]
        static = str(metadata["annotations"][MIRROR])
        record = self._node.kubelet.pods().get(static)
        if record is None or metadata.get("deletionTimestamp"):
            remove = partial(self._remove, metadata["namespace"], metadata["name"], metadata["uid"])
            self._node.lane.put(Priority.DELETION, static, remove)
        if record is not None:
            mirror = self._of(static, metadata["namespace"], metadata["name"])
            if not mirror.uid:
                mirror.uid = metadata["uid"]
                self.touch(static)

    def gone(self, uid: str) -> None:
        """A pod of the API is no more: perhaps a likeness, which is made again then."""
        for static, mirror in list(self._mirrors.items()):
            if mirror.uid == uid:
                mirror.uid, mirror.digest = "", 0
                self.touch(static)

    def listed(self, there: Collection[str]) -> None:
        """These are the UIDs of all pods that the API has on the node."""
        for mirror in list(self._mirrors.values()):
            if mirror.uid and mirror.uid not in there:
                self.gone(mirror.uid)

    # -- what the kubelet does ------------------------------------------------------------

    def touch(self, static: str) -> None:
        """A static pod came, changed or went."""
        with self._lock:
            record = self._node.kubelet.pods().get(static)
            mirror = self._mirrors.get(static)
            if self._closed or (record is None and mirror is None):
                return
            if mirror is None and record is not None:
                pod = record.pod
                mirror = _Mirror(pod.namespace, f"{pod.name}-{self._node.name}")
                self._mirrors[static] = mirror
            assert mirror is not None
            if mirror.is_queued:
                return
            mirror.is_queued = True
        self._node.lane.put(Priority.POD_STATUS, static, lambda: self._sync(static, mirror))

    def _of(self, static: str, namespace: str, name: str) -> _Mirror:
        with self._lock:
            return self._mirrors.setdefault(static, _Mirror(namespace, name))

    def _sync(self, static: str, mirror: _Mirror) -> None:
        with self._lock:
            mirror.is_queued = False
            if self._closed:
                return
        try:
            if static not in self._node.kubelet.pods():
                with self._lock:
                    self._mirrors.pop(static, None)
                if mirror.uid:
                    self._remove(mirror.namespace, mirror.name, mirror.uid)
                return
            if not mirror.uid:
                self._create(static, mirror)
            if mirror.uid:
                self._tell(static, mirror)
        except Forbidden as error:
            self._node.forbidden(error)
        except RequestError as error:
            self._node.say(f"mirror pod of {mirror.name}: {error}")

    def _create(self, static: str, mirror: _Mirror) -> None:
        path = f"/api/v1/namespaces/{mirror.namespace}/pods"
        try:
            made = self._node.api.request(
                "POST", path, self._object(static, mirror), user=self._node.user
            )
        except Conflict:
            self._make_room(static, mirror)
        except NotFound as error:
            self._node.say(f"mirror pod {mirror.name}: {error.message}")
        else:
            mirror.uid = made["metadata"]["uid"]

    def _make_room(self, static: str, mirror: _Mirror) -> None:
        """A pod of this name is there: the likeness that another process made, an old one, or
        somebody's."""
        found = self._node.api.request("GET", pod_path(mirror.namespace, mirror.name))
        metadata = found["metadata"]
        likeness_of = (metadata.get("annotations") or {}).get(MIRROR)
        if likeness_of == static:
            mirror.uid = metadata["uid"]
        elif likeness_of is None:
            self._node.say(
                f"pod {mirror.namespace}/{mirror.name} is there and is no "
                "mirror pod: the static pod is not shown in the API"
            )
        else:
            self._remove(mirror.namespace, mirror.name, metadata["uid"])
            self.touch(static)

    def _object(self, static: str, mirror: _Mirror) -> JsonObject:
        record = self._node.kubelet.pod(static)
        made = pod_object(record.pod, {}, node=self._node.name)
        made["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoExecute"}]
        made["metadata"] = {
            "name": mirror.name,
            "namespace": mirror.namespace,
            "annotations": {
                _SOURCE: "file",
                _SEEN: timestamp(record.start_time or self._node.clock.time()),
                _HASH: static,
                MIRROR: static,
            },
            "ownerReferences": [
                {**node_reference(self._node.name, self._owner()), "controller": True}
            ],
        }
        return {"apiVersion": "v1", "kind": "Pod", **made}

    def _tell(self, static: str, mirror: _Mirror) -> None:
        ours = self._status(static)
        digest = hash(json.dumps(ours))
        if digest == mirror.digest:
            return
        body = {"metadata": {"uid": mirror.uid}, **status_patch(ours)}
        path = pod_path(mirror.namespace, mirror.name, "status")
        try:
            self._node.api.request("PATCH", path, body, patch="strategic", user=self._node.user)
        except (NotFound, Conflict):
            mirror.uid, mirror.digest = "", 0
            self.touch(static)
        else:
            mirror.digest = digest

    def _status(self, static: str) -> JsonObject:
        status = self._node.kubelet.pod_status(static)
        return status_object(
            PodUid(static),
            status,
            now=self._node.clock.time(),
            host_ip=self._node.options.address,
            pod_ip=made_up_ip(static),
        )

    def _remove(self, namespace: str, name: str, uid: str) -> None:
        body: Mapping[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(ApiError):  # it is gone, or another one by now
            self._node.api.request(
                "DELETE", pod_path(namespace, name), dict(body), user=self._node.user
            )

    def close(self) -> None:
        """Do nothing any more."""
        with self._lock:
            self._closed = True
