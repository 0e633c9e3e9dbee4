"""Find the version of ``resource.k8s.io``, the API group of DRA, to use with an API server."""

from __future__ import annotations

import threading
from typing import Final

from devicemanager.client.errors import NotFound
from devicemanager.client.protocol import Api

__all__ = ["ResourceGroup"]

_GROUP: Final = "/apis/resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")


class ResourceGroup:
    """Version of the API group ``resource.k8s.io`` to use with one API server. Thread-safe.

    It is the newest version that the server and this module both support. All nodes of a cluster
    share one object, so the server is asked only once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by the lock. None: not requested yet; empty: the server does not have the group.
        self._version: str | None = None

    def version(self, api: Api) -> str:
        """Return the version, such as ``v1``; empty if the server and this module have none in
        common.

        The first call sends a request. Raises ApiError if the request fails.
        """
        # Locked during the request: the nodes of a cluster start at the same time, and each would
        # send its own request. A failed request is not stored, so the next call tries again.
        with self._lock:
            if self._version is None:
                self._version = _newest(api)
            return self._version

    def path(self, api: Api, rest: str) -> str:
        """Return the API path of an object or a list of the group, such as
        ``/apis/resource.k8s.io/v1/resourceslices``.

        ``rest`` is the part after the version. If ``version`` returns an empty text, the path has
        v1. Raises ApiError if the version must be requested and the request fails.
        """
        return f"{_GROUP}/{self.version(api) or _VERSIONS[0]}/{rest}"


def _newest(api: Api) -> str:
    try:
        found = api.request("GET", _GROUP)
    except NotFound:
        # By default, API servers have served this group only since Kubernetes 1.34.
        return ""
    served = {each.get("version") for each in found.get("versions") or ()}
    return next((each for each in _VERSIONS if each in served), "")
