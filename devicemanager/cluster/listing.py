"""LIST by pages, so that neither side holds everything twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from devicemanager.cluster.protocol import JsonObject

__all__ = ["pages"]

_PAGE: Final = 500
"""Objects that a page has at most."""


class Asked(Protocol):
    """What is asked of the API client."""

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """One request."""


def pages(api: Asked, path: str, query: Mapping[str, str] | None = None) -> Iterator[JsonObject]:
    """The lists that together have all objects of a path; ``query`` selects. Raises as
    ``attempt`` does."""
    asked = {**(query or {}), "limit": str(_PAGE)}
    while True:
        page = api.attempt("GET", path, query=asked)
        yield page
        following = page.get("metadata", {}).get("continue")
        if not following:
            return
        asked = {**asked, "continue": following}
