"""Claim source that uses an API server, through ``devicemanager.client``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.client.errors import ApiError, ClientClosing, ClusterError, NotFound
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.core.errors import StartError

__all__ = ["ApiClaims"]

_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""API versions in the order to try. A claim has the same status in each."""


class ApiClaims:
    """Claim source that gets each claim from an API server. Thread-safe."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._version = _VERSIONS[0]

    @classmethod
    def open(cls, kubeconfig: Path) -> Self:
        """Return the source of the API server in a kubeconfig. Raises StartError."""
        try:
            return cls(ApiClient(load(kubeconfig), connections=8))
        except ClusterError as error:
            raise StartError(str(error)) from error

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim. Raises ClaimFetchError with the API server's message."""
        # Try only once, as the kubelet: it retries the pod later.
        try:
            return self._any_version(f"namespaces/{namespace}/resourceclaims/{name}")
        except ApiError as error:
            raise ClaimFetchError(error.message or str(error)) from error
        except (ClusterError, ClientClosing) as error:
            raise ClaimFetchError(str(error) or "the kubelet is stopping") from error

    def _any_version(self, path: str) -> Mapping[str, Any]:
        """Get an object in the first API version that the server has."""
        first = self._version
        others = [each for each in _VERSIONS if each != first]
        for version in (first, *others):
            try:
                found = self._client.attempt("GET", f"{_GROUP}/{version}/{path}")
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

    def known(self, kind: str) -> tuple[()]:
        """Return nothing: every object of an API server needs a request."""
        return ()

    def wipe(self, selector: str) -> None:
        """Delete the ResourceSlices that match a field selector. The status 404 counts as
        success."""
        path = f"{_GROUP}/{self._version}/resourceslices"
        try:
            self._client.attempt("DELETE", path, query={"fieldSelector": selector})
        except NotFound:
            return
        except ClientClosing:
            return

    def close(self) -> None:
        """Cancel requests in progress, and reject new ones."""
        self._client.close()
