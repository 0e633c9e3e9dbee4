"""Log of requests. Tests search it and wait for requests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import attrs

__all__ = ["LoggedRequest", "RequestLog"]

_LIMIT: Final = 10_000
_MOST_BYTES: Final = 256 << 20
"""Maximum size of all stored bodies together, in bytes."""


@attrs.frozen
class LoggedRequest:
    """Log entry: a request and the status code of its response.

    The entry of a watch is added when the watch starts.
    """

    method: str
    path: str
    """Path with query, as sent."""
    code: int
    """Status code of the response."""
    verb: str = ""
    """Verb as in RBAC, such as ``list``; empty if the path names no resource."""
    resource: str = ""
    """Plural name, such as ``pods``; empty if the path names no resource."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    version: str = ""
    """``apiVersion`` in the path, such as ``resource.k8s.io/v1``."""
    selector: str = ""
    """Field selector."""
    agent: str = ""
    """``User-Agent`` of the client."""
    content: str = ""
    """``Content-Type`` of the request body."""
    body: Any = attrs.field(default=None, repr=False)
    """Decoded body of the request; None if the body is empty or the request could not be parsed."""
    size: int = attrs.field(default=0, repr=False)
    """Size of the request body in bytes, as sent; 0 if the request could not be parsed."""
    message: str = attrs.field(default="", repr=False)
    """The server's reason if it rejected the request, else empty."""

    def matches(self, fields: dict[str, Any]) -> bool:
        """True if the attributes of this request have the values in ``fields``."""
        return all(getattr(self, name) == value for name, value in fields.items())


class RequestLog:
    """Log of the last 10,000 requests, oldest first. Thread-safe.

    The log keeps fewer requests if their bodies are large.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: deque[LoggedRequest] = deque()
        self._bytes = self._added = 0

    def add(self, request: LoggedRequest) -> None:
        """Add a request."""
        with self._changed:
            self._requests.append(request)
            self._bytes += request.size
            while len(self._requests) > _LIMIT or self._bytes > _MOST_BYTES:
                self._bytes -= self._requests.popleft().size
            self._added += 1
            self._changed.notify_all()

    def clear(self) -> None:
        """Remove all requests."""
        with self._changed:
            self._requests.clear()
            self._bytes = 0

    def follow(self) -> Iterator[LoggedRequest]:
        """Return an endless iterator over the requests that are logged after this call.

        The iterator blocks until the next request is logged.
        """
        with self._changed:
            return self._after(self._added)

    def _after(self, at: int) -> Iterator[LoggedRequest]:
        while True:
            with self._changed:
                while self._added == at:
                    self._changed.wait()
                found = list(self._requests)[-(self._added - at) :]
                at = self._added
            yield from found

    def find(self, **fields: Any) -> list[LoggedRequest]:
        """Return the requests whose attributes have the values in ``fields``, oldest first.

        Example: ``log.find(verb="update", resource="resourceslices", code=409)``. Raises
        AttributeError for an unknown name.
        """
        with self._changed:
            return self._find(fields)

    def wait_for(
        self, count: int = 1, *, timeout: float = 10.0, **fields: Any
    ) -> list[LoggedRequest]:
        """Wait until ``find(**fields)`` returns at least ``count`` requests, and return them.

        Requests before this call count, too. Raises TimeoutError after ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._find(fields)) >= count, timeout):
                found = len(self._find(fields))
                raise TimeoutError(
                    f"waited {timeout:g} s for requests with {fields}: expected {count}, "
                    f"found {found}"
                )
            return self._find(fields)

    def _find(self, fields: dict[str, Any]) -> list[LoggedRequest]:
        return [each for each in self._requests if each.matches(fields)]
