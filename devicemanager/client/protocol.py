"""Protocol class (``typing.Protocol``) of the API client that nodes and pods use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Api", "JsonObject", "Patch"]

JsonObject: TypeAlias = dict[str, Any]
"""JSON object, such as a Kubernetes object, as a dict."""

Patch = Literal["strategic", "merge"]
"""Type of a PATCH: strategic merge patch or JSON merge patch."""


class Api(Protocol):
    """Client for the API server; calls block. Thread-safe."""

    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patch: Patch | None = None,
        user: str | None = None,
    ) -> JsonObject:
        """Send one request and return the object in the response.

        ``path`` is absolute, such as ``/api/v1/nodes/rack-0/status``. ``patch`` is the type of a
        PATCH. ``user`` is the name of a node to impersonate.

        Retries 429, 5xx and broken connections without limit. Raises an ApiError for any other
        error response, and ClientClosing after the client was closed.
        """
