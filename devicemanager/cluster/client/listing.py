"""LIST by pages, so that neither side holds everything twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from devicemanager.cluster.client.errors import Unavailable
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import list_items, list_metadata

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
    ``attempt`` does, and Unavailable for an answer that is no list."""
    asked = {**(query or {}), "limit": str(_PAGE)}
    while True:
        page = api.attempt("GET", path, query=asked)
        try:
            list_items(page)
            following = str(list_metadata(page).get("continue") or "")
        except ValueError as error:
            raise Unavailable(f"GET {path}: the answer is no list: {error}") from None
        yield page
        if not following:
            return
        if following == asked.get("continue"):
            raise Unavailable(f"GET {path}: the list continues with the same page for ever")
        asked = {**asked, "continue": following}
