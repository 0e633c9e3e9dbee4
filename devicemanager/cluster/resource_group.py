"""Find the newest version of ``resource.k8s.io``, the API group of DRA, that a server has."""

from __future__ import annotations

import threading
from typing import Final

from devicemanager.client.errors import NotFound
from devicemanager.client.protocol import Api

__all__ = ["ResourceGroup"]

_GROUP: Final = "/apis/resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")


class ResourceGroup:
    """Newest version of the API group ``resource.k8s.io`` that one server has. Thread-safe.

    All nodes of a cluster share one object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by the lock. None: not requested yet; empty: the server does not have the group.
        self._version: str | None = None

    def version(self, api: Api) -> str:
        """Return the newest version that the server and this module both support, such as ``v1``.

        The text is empty if the server has no such version. The first call sends a request. Raises
        ApiError if the request fails.
        """
        with self._lock:
            if self._version is None:
                self._version = _newest(api)
            return self._version

    def path(self, api: Api, rest: str) -> str:
        """Return the API path of an object or a list of the group.

        ``rest`` is the end of the path, such as ``resourceslices``. The path has the version that
        the method ``version`` returns. If that text is empty, the path has v1. Raises the errors of
        ``version``.
        """
        return f"{_GROUP}/{self.version(api) or _VERSIONS[0]}/{rest}"


def _newest(api: Api) -> str:
    try:
        found = api.request("GET", _GROUP)
    except NotFound:
        return ""
    served = {each.get("version") for each in found.get("versions") or ()}
    return next((each for each in _VERSIONS if each in served), "")
