"""Mirror pods of static pods (``pkg/kubelet/pod/mirror_client.go``, v1.32).

A static pod does not come from the API server. It comes from a directory of manifests, or from a
call of the kubelet's method ``admit``. For each static pod, a mirror pod is created on the API
server. The mirror pod does not affect allocation: devices are allocated to the UID of the static
pod. A deleted mirror pod is recreated.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import attrs

from devicemanager.client.api import pod_path
from devicemanager.client.errors import ApiError, Conflict, Forbidden, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.client.work_queue import Priority
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import MIRROR
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
    """The mirror pod of one static pod.

    The sync loop changes the fields after events of the API server. Work under the static pod's UID
    in the work queue changes them after requests.
    """

    namespace: str
    name: str
    uid: str = ""
    """UID of the mirror pod; empty if the mirror pod does not exist."""
    digest: int = 0
    ip: str = ""
    """IP address of the static pod; empty before an address is allocated."""
    is_queued: bool = False


class Mirrors:
    """Writer of the mirror pods of one node. Thread-safe."""

    __slots__ = ("_closed", "_lock", "_mirrors", "_node", "_owner")

    def __init__(
        self,
        node: NodeContext,
        owner: Callable[[], str],
    ) -> None:
        """Create the writer of a node's mirror pods; ``owner`` returns the UID of the Node."""
        self._node = node
        self._owner = owner
        # Guards the fields below, and ``is_queued``.
        self._lock = threading.Lock()
        self._mirrors: dict[str, _Mirror] = {}
        self._closed = False

    # -- events of the API server ----------------------------------------------------------

    def found(self, object_: JsonObject) -> None:
        """Use a mirror pod that exists on the API server instead of creating one.

        Delete the mirror pod if its static pod no longer exists, or if the mirror pod is marked for
        deletion.
        """
        metadata = object_["metadata"]
        static = str(metadata["annotations"][MIRROR])
        record = self._node.kubelet.pod_store.get(PodUid(static))
        if record is None or metadata.get("deletionTimestamp"):
            delete = partial(self._delete, metadata["namespace"], metadata["name"], metadata["uid"])
            self._node.writes.put(Priority.DELETION, static, delete)
        if record is not None:
            mirror = self._get_or_add(static, metadata["namespace"], metadata["name"])
            if not mirror.uid:
                mirror.uid = metadata["uid"]
                self._adopt_address(mirror, (object_.get("status") or {}).get("podIP") or "")
                self.update(static)

    def _adopt_address(self, mirror: _Mirror, address: str) -> None:
        """Keep the address that an earlier process reported, unless another pod has it."""
        if not mirror.ip:
            mirror.ip = self._node.addresses.allocate(address)

    def deleted(self, uid: str) -> None:
        """Recreate the deleted pod with this UID if it was a mirror pod."""
        for static, mirror in list(self._mirrors.items()):
            if mirror.uid == uid:
                mirror.uid, mirror.digest = "", 0
                self.update(static)

    def on_pod_list(self, uids: Collection[str]) -> None:
        """Recreate the mirror pods that are missing from a LIST.

        ``uids`` has the UIDs of all pods in this LIST.
        """
        for mirror in list(self._mirrors.values()):
            if mirror.uid and mirror.uid not in uids:
                self.deleted(mirror.uid)

    # -- events of the kubelet -------------------------------------------------------------

    def update(self, static: str) -> None:
        """Queue the creation, update or deletion of a static pod's mirror pod."""
        with self._lock:
            record = self._node.kubelet.pod_store.get(PodUid(static))
            mirror = self._mirrors.get(static)
            # If both are None, there is no static pod with this UID.
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
        self._node.writes.put(Priority.POD_STATUS, static, lambda: self._sync(static, mirror))

    def _get_or_add(self, static: str, namespace: str, name: str) -> _Mirror:
        with self._lock:
            return self._mirrors.setdefault(static, _Mirror(namespace, name))

    def _sync(self, static: str, mirror: _Mirror) -> None:
        with self._lock:
            mirror.is_queued = False
            if self._closed:
                return
        try:
            if not self._node.kubelet.has_pod(static):
                with self._lock:
                    self._mirrors.pop(static, None)
                self._node.addresses.free(mirror.ip)
                if mirror.uid:
                    self._delete(mirror.namespace, mirror.name, mirror.uid)
                return
            if not mirror.uid:
                self._create(static, mirror)
            if mirror.uid:
                self._write_status(static, mirror)
        except (Forbidden, RequestError) as error:
            self._node.say(f"cannot write the mirror pod of {mirror.name}: {error}")

    # -- requests --------------------------------------------------------------------------

    def _create(self, static: str, mirror: _Mirror) -> None:
        path = f"/api/v1/namespaces/{mirror.namespace}/pods"
        try:
            made = self._node.api.request(
                "POST", path, self._object(static, mirror), user=self._node.user
            )
        except Conflict:
            self._resolve_conflict(static, mirror)
        except NotFound as error:
            self._node.say(f"cannot create the mirror pod of {mirror.name}: {error.message}")
        else:
            mirror.uid = made["metadata"]["uid"]

    def _resolve_conflict(self, static: str, mirror: _Mirror) -> None:
        """Handle an existing pod that has the name of the mirror pod.

        1. Another process created it as mirror pod of the same static pod: adopt it.
        2. It is not a mirror pod: warn, and do not change it.
        3. It is the mirror pod of another static pod: delete it and try again.
        """
        found = self._node.api.request("GET", pod_path(mirror.namespace, mirror.name))
        metadata = found["metadata"]
        mirrored = (metadata.get("annotations") or {}).get(MIRROR)
        if mirrored == static:
            mirror.uid = metadata["uid"]
        elif mirrored is None:
            self._node.say(
                f"pod {mirror.namespace}/{mirror.name} exists and is not a mirror pod: "
                "the static pod has no mirror pod"
            )
        else:
            self._delete(mirror.namespace, mirror.name, metadata["uid"])
            self.update(static)

    def _object(self, static: str, mirror: _Mirror) -> JsonObject:
        record = self._node.kubelet.pod_store.known(static)
        made = pod_object(record.pod, {}, node=self._node.name)
        # As in the kubelet, taints cannot evict a static pod.
        made["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoExecute"}]
        made["metadata"] = {
            "name": mirror.name,
            "namespace": mirror.namespace,
            "annotations": {
                _SOURCE: "file",
                _SEEN: timestamp(record.start_time or self._node.clock.time()),
                # The kubelet uses a hash of the manifest. Like the hash, the UID is different for
                # each static pod.
                _HASH: static,
                MIRROR: static,
            },
            "ownerReferences": [
                {**node_reference(self._node.name, self._owner()), "controller": True}
            ],
        }
        return {"apiVersion": "v1", "kind": "Pod", **made}

    def _write_status(self, static: str, mirror: _Mirror) -> None:
        status = self._status(static, mirror)
        # Many events of the kubelet do not change the status.
        digest = hash(json.dumps(status))
        if digest == mirror.digest:
            return
        body = {"metadata": {"uid": mirror.uid}, **status_patch(status)}
        path = pod_path(mirror.namespace, mirror.name, "status")
        try:
            self._node.api.request("PATCH", path, body, patch="strategic", user=self._node.user)
        except (NotFound, Conflict):
            # A user has deleted the mirror pod. The event can arrive later or was handled before.
            mirror.uid, mirror.digest = "", 0
            self.update(static)
        else:
            mirror.digest = digest

    def _status(self, static: str, mirror: _Mirror) -> JsonObject:
        mirror.ip = mirror.ip or self._node.addresses.allocate()
        status = self._node.kubelet.pod_status(static)
        return status_object(
            PodUid(static),
            status,
            now=self._node.clock.time(),
            host_ip=self._node.options.address,
            pod_ip=mirror.ip,
        )

    def _delete(self, namespace: str, name: str, uid: str) -> None:
        body: Mapping[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(ApiError):  # the pod was deleted, and perhaps recreated
            self._node.api.request(
                "DELETE", pod_path(namespace, name), dict(body), user=self._node.user
            )

    def close(self) -> None:
        """Stop all writes of mirror pods."""
        with self._lock:
            self._closed = True
