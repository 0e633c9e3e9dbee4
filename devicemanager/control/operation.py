"""One row of a table of operations, and what its handler is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any

import attrs

__all__ = ["Body", "Kind", "Operation", "Request", "call"]


class Kind(Enum):
    """How an operation is carried out."""

    CALL = "call"
    """On a worker thread, at once."""
    WAIT = "wait"
    """Looked at again after every event, until its ``timeout`` is over."""
    STREAM = "stream"
    """Lines of JSON, as they come."""


class Body(Enum):
    """Bodies that are no shapes of ours."""

    MANIFEST = "a pod's manifest, as JSON or YAML"
    OBJECTS = "objects of devmgmtproto.k8s.io, as JSON or YAML"


@attrs.frozen
class Request:
    """What a handler is given: names in the path, the query and the body, all checked."""

    path: Mapping[str, str] = attrs.field(factory=dict)
    query: Any = None
    body: Any = None
    timeout: float = 0.0
    """For waits: 0, look and say."""


@attrs.frozen
class Operation:
    """One row."""

    name: str
    """``operationId``."""
    method: str
    path: str
    members: tuple[str, ...]
    """The members in Python that it stands for."""
    summary: str
    handler: Callable[[Any, Request], Any]
    """Called on a worker thread with what is steered."""
    answer: Any = None
    """The type of the answer; None for none."""
    query: type | None = None
    body: type | Body | None = None
    kind: Kind = Kind.CALL
    status: HTTPStatus = HTTPStatus.OK

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names in the path."""
        return tuple([part[1:-1] for part in self.path.split("/") if part.startswith("{")])


def call(
    name: str, method: str, path: str, members: str, summary: str, handler: Any, **more: Any
) -> Operation:
    """A row; ``members`` are separated by spaces. Without an answer its status is 204."""
    if "answer" not in more:
        more["status"] = HTTPStatus.NO_CONTENT
    return Operation(name, method, path, tuple(members.split()), summary, handler, **more)
