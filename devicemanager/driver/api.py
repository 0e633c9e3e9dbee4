"""Requests of a driver to the API server: its Node, its ResourceSlices, and ResourceClaims.

Requests use the newest version of ``resource.k8s.io`` that the server has. ``slices``, ``create``
and ``replace`` convert ResourceSlices from and to v1. ``claim`` and ``watch`` do not convert
objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from devicemanager.client.errors import NotFound, Unavailable
from devicemanager.client.protocol import JsonObject
from devicemanager.client.reflector import Reflector, Sink, pages
from devicemanager.io.retry import retry

if TYPE_CHECKING:
    from devicemanager.client.api import ApiClient

__all__ = ["ResourceApi"]

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""API versions that a driver can use, preferred first."""

_CLAIM_SECONDS: Final = 20.0
"""Seconds for which a request for a claim is retried. The kubelet's call has a deadline of 45 s."""


class ResourceApi:
    """API client for the requests of one driver on one node. Thread-safe.

    Unless a docstring says otherwise, a method sends its request once and raises the errors of
    ``ApiClient.attempt``.
    """

    def __init__(self, client: ApiClient, driver: str, node: str) -> None:
        self._client = client
        self._selector = {"fieldSelector": f"spec.driver={driver},spec.nodeName={node}"}
        self._node = node
        self._choosing = threading.Lock()
        self._version: str | None = None

    @property
    def version(self) -> str:
        """Newest usable API version.

        Raises NotFound if the server has none: before Kubernetes 1.32, or if the API is
        disabled.
        """
        # Several threads can call this at once. Only the first one sends the requests.
        # An error is not stored, because the API server may start after the driver.
        with self._choosing:
            if self._version is None:
                self._version = self._choose()
            return self._version

    def _choose(self) -> str:
        *others, last = VERSIONS
        for version in others:
            try:
                # Only the status code matters, so one item is enough.
                self._client.attempt("GET", _slices(version), query={"limit": "1"})
            except NotFound:
                continue
            return version
        # Here NotFound is not caught: the server has none of the versions.
        self._client.attempt("GET", _slices(last), query={"limit": "1"})
        return last

    def claim(self, namespace: str, name: str) -> JsonObject | None:
        """Return a ResourceClaim; None if it does not exist.

        If the server is unavailable, the request is repeated for up to 20 s. Raises Unavailable
        after this time, or earlier if the client is closed.
        """
        path = f"/apis/{GROUP}/{self.version}/namespaces/{namespace}/resourceclaims/{name}"
        try:
            return retry(
                lambda: self._client.attempt("GET", path),
                Unavailable,
                sleep=self._client.wait,
                first_wait=0.2,
                longest_wait=2.0,
                seconds=_CLAIM_SECONDS,
                stopping=lambda: self._client.is_closing,
            )
        except NotFound:
            return None

    def owner(self) -> JsonObject:
        """Return an owner reference to the Node, so that slices are deleted with the Node."""
        node = self._client.attempt("GET", f"/api/v1/nodes/{self._node}")
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }

    def slices(self) -> list[JsonObject]:
        """Return the driver's ResourceSlices of this node."""
        version = self.version
        listed = pages(self._client, _slices(version), self._selector)
        return [_to_v1(each) for page in listed for each in page.get("items") or ()]

    def create(self, slice_: JsonObject) -> JsonObject:
        """Create a ResourceSlice. Return the stored slice."""
        return self._send("POST", "", slice_)

    def replace(self, slice_: JsonObject) -> JsonObject:
        """Replace a ResourceSlice. Return the stored slice.

        Raises Conflict if another client has changed the slice.
        """
        return self._send("PUT", f"/{slice_['metadata']['name']}", slice_)

    def _send(self, method: str, path: str, slice_: JsonObject) -> JsonObject:
        version = self.version
        body = _from_v1(slice_, version)
        return _to_v1(self._client.attempt(method, _slices(version) + path, body))

    def delete(self, slice_: JsonObject) -> None:
        """Delete a ResourceSlice; do nothing if it does not exist.

        Raises Conflict if another client has changed the slice.
        """
        metadata = slice_["metadata"]
        conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        path = f"{_slices(self.version)}/{metadata['name']}"
        try:
            self._client.attempt("DELETE", path, {"preconditions": conditions})
        except NotFound:
            return

    def watch(self, sink: Sink, warn: Callable[[str], None]) -> None:
        """Send the driver's ResourceSlices of this node, and their changes, to ``sink``.

        Return when the client is closed. ``warn`` is called with a line of text for each problem.
        """
        path = _slices(self.version)
        Reflector(self._client, path, sink, query=self._selector, warn=warn).run()


def _slices(version: str) -> str:
    return f"/apis/{GROUP}/{version}/resourceslices"


def _to_v1(slice_: JsonObject) -> JsonObject:
    """Convert a slice to v1. In v1beta1, most fields of a device are in ``basic``."""
    devices = [
        {"name": device.get("name"), **device["basic"]} if "basic" in device else device
        for device in slice_["spec"].get("devices") or ()
    ]
    return _with_devices(slice_, "v1", devices)


def _from_v1(slice_: JsonObject, version: str) -> JsonObject:
    devices = slice_["spec"].get("devices") or ()
    if version == "v1beta1":
        devices = [
            {"name": device["name"], "basic": {k: v for k, v in device.items() if k != "name"}}
            for device in devices
        ]
    return _with_devices(slice_, version, devices)


def _with_devices(slice_: JsonObject, version: str, devices: Any) -> JsonObject:
    spec = slice_["spec"]
    # A slice with shared counters has no field ``devices``, and must not get an empty one.
    if "devices" in spec:
        spec = {**spec, "devices": list(devices)}
    return {
        **slice_,
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "spec": spec,
    }
