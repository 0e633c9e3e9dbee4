"""Read ResourceClaims from an API server, through ``devicemanager.client``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.client.errors import ApiError, ClientClosing, ClusterError, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.core.errors import StartError
from devicemanager.kubelet.dra.api_slices import ApiSlices

__all__ = ["ApiClaims"]

_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""API versions in the order to try. A claim has the same status in each."""


class ApiClaims:
    """Source of ResourceClaims that gets each claim from an API server. Thread-safe.

    ``ApiSlices``, which watches the node's ResourceSlices, uses ``is_closing``, ``wait``,
    ``attempt`` and ``stream``. The argument ``path`` of ``attempt`` and ``stream`` is relative to
    the API version, such as ``resourceslices``.
    """

    def __init__(self, client: ApiClient, node: str, changed: Callable[[str], None]) -> None:
        """``changed`` is called with a line of text for each change of a ResourceSlice of the
        node."""
        self._client = client
        self._version = _VERSIONS[0]
        self._slices = ApiSlices(self, node, changed)

    @classmethod
    def open(cls, kubeconfig: Path, node: str, changed: Callable[[str], None]) -> Self:
        """Create a source that uses the API server in a kubeconfig file.

        ``changed`` is called with a line of text for each change of a ResourceSlice of the node
        ``node``. Raises StartError for an invalid kubeconfig.
        """
        try:
            return cls(ApiClient(load(kubeconfig), connections=8), node, changed)
        except ClusterError as error:
            raise StartError(str(error)) from error

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim. Raises ClaimFetchError with the API server's message."""
        # Try only once, as the kubelet: it retries the pod later.
        try:
            return self.attempt("GET", f"namespaces/{namespace}/resourceclaims/{name}")
        except ApiError as error:
            raise ClaimFetchError(error.message or str(error)) from error
        except (ClusterError, ClientClosing) as error:
            raise ClaimFetchError(str(error) or "the kubelet is stopping") from error

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Send a request, and return the response.

        The request uses the API version that worked last. If the server does not have this
        version, the request is sent again with the other versions, one after the other.
        """
        first = self._version
        others = [each for each in _VERSIONS if each != first]
        for version in (first, *others):
            try:
                found = self._client.attempt(method, f"{_GROUP}/{version}/{path}", query=query)
            except NotFound as error:
                # A server without this version does not name the object in its error. Then try the
                # next version.
                if error.reason == "NotFound" and "resourceclaims" in error.message:
                    raise
                missing = error
                continue
            self._version = version
            return found
        raise missing

    def stream(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a watch. Return a context manager that provides an iterator over the watch's lines.

        The request uses the API version that worked last. The iterator raises Unavailable if the
        server sends nothing for ``silence`` seconds.
        """
        return self._client.stream(f"{_GROUP}/{self._version}/{path}", query, silence=silence)

    @property
    def is_closing(self) -> bool:
        """True if ``close`` was called."""
        return self._client.is_closing

    def wait(self, seconds: float) -> bool:
        """Wait until ``close`` is called, but at most ``seconds``. Return True if it was called."""
        return self._client.wait(seconds)

    def known(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Return the node's ResourceSlices if ``kind`` is ``ResourceSlice``; else an empty tuple.

        Only ResourceSlices are watched. The tuple is also empty until the API server has responded.
        """
        return self._slices.known() if kind == "ResourceSlice" else ()

    def wipe(self, selector: str) -> None:
        """Delete the ResourceSlices that match a field selector. If the server responds with 404,
        do nothing."""
        path = f"{_GROUP}/{self._version}/resourceslices"
        try:
            self._client.attempt("DELETE", path, query={"fieldSelector": selector})
        except NotFound:
            # As in the kubelet, 404 counts as done.
            return
        except ClientClosing:
            # The kubelet is stopping. Its next start deletes all slices of the node.
            return

    def close(self) -> None:
        """Cancel requests in progress, and reject new ones."""
        self._client.close()
