"""What nodes and pods use of the API client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Api", "JsonObject", "Patch"]

JsonObject: TypeAlias = dict[str, Any]

Patch = Literal["strategic", "merge"]
"""How the server merges the body of a PATCH."""


class Api(Protocol):
    """The API server. Calls block. Thread-safe."""

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

        ``path`` is absolute, such as ``/api/v1/nodes/rack-0/status``. ``patch`` is for
        PATCH only. ``user`` is the name of a node to impersonate.

        Retries 429, 5xx and broken connections without limit. Raises an ApiError for any
        other error, and ClientClosing after ``close``.
        """
