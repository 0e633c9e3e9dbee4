"""Answers that do not end soon, so that they can be ended from elsewhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devicemanager.cluster.client.errors import ClientClosing

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["OpenStreams"]


class OpenStreams:
    """May be used from any thread."""

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._answers: set[BaseHTTPResponse] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def followed(self, answer: BaseHTTPResponse) -> Iterator[None]:
        """``close`` ends the reading of it meanwhile. Raises ClientClosing after ``close``."""
        with self._lock:
            if self._is_closed:
                raise ClientClosing
            self._answers.add(answer)
        try:
            yield
        finally:
            with self._lock:
                self._answers.discard(answer)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._is_closed = True
            answers = list(self._answers)
        for answer in answers:
            # Releases before 2.3 lack it: there the stream's own deadline ends it.
            if (shutdown := getattr(answer, "shutdown", None)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    shutdown()
