"""Operations of a control API, and the table that contains them.

An operation is a function that a decorator adds to a table::

    @TABLE.post("/v1/pods/{uid}/finish", "finish")
    def finish_pod(kubelet: MockKubelet, uid: str, body: Finish) -> Finished:
        \"""Let every app container of a pod terminate.\"""

The function defines the operation:

* Its name becomes the operationId, here ``finishPod``. Its docstring becomes the summary.
* Its first parameter is the object that the API controls.
* Its parameter ``body`` is the body of the request.
* Its keyword-only parameters are the parameters of the query.
* Its other parameters are names in the path, here ``uid``.

The router, the OpenAPI document, the client and ``devicemanager ctl`` use the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from typing import (
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import msgspec

__all__ = [
    "DraObjects",
    "Manifest",
    "Objects",
    "Operation",
    "OperationTable",
    "Stream",
    "Text",
    "Wait",
    "Workers",
]  # fmt: skip

T = TypeVar("T")


class Text(Enum):
    """Content of a request body that is sent as JSON or YAML text, such as a pod's manifest."""

    MANIFEST = "a pod's manifest, as JSON or YAML"
    OBJECTS = "objects of devmgmtproto.k8s.io, as JSON or YAML"
    DRA_OBJECTS = "objects of resource.k8s.io, as JSON or YAML"


# The text is not parsed here. `MockKubelet` parses it, with the same errors as in Python.
Manifest = Annotated[str, Text.MANIFEST]
Objects = Annotated[str, Text.OBJECTS]
DraObjects = Annotated[str, Text.DRA_OBJECTS]


class Workers(Enum):
    """Group of worker threads. An operation waits for a free thread in its own group only."""

    QUICK = "quick"
    """Group for operations that do not wait for plugins. Most of them show something; some set or
    clear faults."""
    ENDING = "ending"
    """Group for operations that can end other operations in progress, such as the deletion of a pod
    while its plugin hangs."""
    LONG = "long"
    """Group for operations that call plugins, or that wait for such operations."""


@attrs.frozen
class Wait(Generic[T]):
    """What an operation returns if its response must wait for a condition. The router calls
    ``check`` until the condition is met, or until ``timeout`` seconds have passed."""

    feed: str
    """The name of the feed, "events" or "calls", whose entries make the router check again."""
    timeout: float
    check: Callable[[], T]
    """Returns the result if the condition is met; otherwise raises WaitTimeout. It runs on a worker
    thread and does not block."""
    kinds: frozenset[str] = frozenset()
    """Kinds of feed entries after which ``check`` can succeed; empty for all kinds."""
    may_end: Callable[[Any], bool] = lambda _: True
    """Takes a feed entry, and returns False if ``check`` cannot succeed after this entry. It is
    called for each entry of the ``kinds``. It runs on the event loop, so it must be fast."""
    recheck: float | None = None
    """Seconds after which the router checks again even if the feed has no new entry. Needed if the
    condition can become true as time passes. None if the router checks only after new entries."""


@attrs.frozen
class Stream(Generic[T]):
    """What an operation returns if its response is lines of JSON, one for each event or call."""

    feed: str
    since: int
    """The number of the last entry that the client already has; 0 if it has none."""
    follow: bool
    """True to continue with new entries until the client disconnects or the server stops."""
    wanted: Callable[[Sequence[Any]], Sequence[Any]]
    """Takes a batch of entries, and returns the entries to send."""


WorkersOf = Workers | Callable[[Mapping[str, Any]], Workers]
"""The group of worker threads of an operation, or a function that selects the group by the
arguments of a request."""


class Operation(Generic[T]):
    """An operation of a control API; ``T`` is the type of its result."""

    # Not an attrs class, because its properties are computed from the function at first use.

    def __init__(
        self,
        handler: Callable[..., T],
        method: str,
        path: str,
        members: str,
        status: HTTPStatus = HTTPStatus.OK,
        workers: WorkersOf = Workers.QUICK,
    ) -> None:
        """Create an operation. ``members`` names the methods and properties that the operation
        makes available, separated by spaces. They belong to the object that the API controls.
        ``workers`` is the group of worker threads, or a function that selects the group by the
        arguments of a request."""
        self.handler = handler
        self._workers = workers
        self.method = method
        self.path = path
        self.members = tuple(members.split())
        self._status = status
        # OpenAPI's convention is camelCase, and code generators use the operationId as a name.
        first, *words = handler.__name__.split("_")
        self.name = first + "".join(map(str.capitalize, words))
        """The ``operationId``, such as ``finishPod``."""
        self.summary = " ".join((handler.__doc__ or "").split())

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters, in order."""
        return tuple([part[1:-1] for part in self.path.split("/") if part.startswith("{")])

    def workers(self, arguments: Mapping[str, Any]) -> Workers:
        """Return the group of worker threads that runs a request with these arguments."""
        return self._workers if isinstance(self._workers, Workers) else self._workers(arguments)

    # Types are read at first use, because a client uses few operations.

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the result, or of each line of a stream; None without a result."""
        # Clients get the result of a wait or the lines of a stream, not the Wait or Stream itself.
        found = self._hints["return"]
        if get_origin(found) in (Wait, Stream):
            (found,) = get_args(found)
        return None if found is type(None) else found

    @property
    def is_stream(self) -> bool:
        """True if the response is lines of JSON."""
        return get_origin(self._hints["return"]) is Stream

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status of a successful response."""
        return HTTPStatus.NO_CONTENT if self.answer is None else self._status

    @property
    def body(self) -> type[msgspec.Struct] | Text | None:
        """The type of the request's body: a struct, or a ``Text`` for JSON or YAML text. None if
        the request has no body."""
        found = self._hints.get("body")
        if get_origin(found) is Annotated:
            return next(each for each in get_args(found) if isinstance(each, Text))
        return found

    @cached_property
    def query(self) -> type[msgspec.Struct] | None:
        """A struct type whose fields are the parameters of the query; None for a query
        without parameters."""
        # A struct lets msgspec check the parameters and describe them in the OpenAPI document.
        fields = [
            (each.name, self._hints[each.name], *_default(each))
            for each in inspect.signature(self.handler).parameters.values()
            if each.kind is each.KEYWORD_ONLY
        ]
        if not fields:
            return None
        name = f"{self.name[0].upper()}{self.name[1:]}Query"
        return msgspec.defstruct(
            name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True
        )


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return () if parameter.default is parameter.empty else (parameter.default,)


class _Decorator(Protocol):
    def __call__(self, handler: Callable[..., T], /) -> Operation[T]: ...


class OperationTable:
    """The operations of one control API, in the order of their definitions."""

    def __init__(self, title: str, description: str) -> None:
        """Create a table without operations. The OpenAPI document shows ``title`` and
        ``description``, which is Markdown."""
        self.title = title
        self.description = description
        self._by_name: dict[str, Operation[Any]] = {}

    def __iter__(self) -> Iterator[Operation[Any]]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Operation[Any]:
        """Return the operation with this operationId."""
        return self._by_name[name]

    def get(self, path: str, members: str) -> _Decorator:
        """Return a decorator that adds a function to the table as the operation ``GET path``.

        ``members`` names the methods and properties that the operation makes available, separated
        by spaces. They belong to the object that the API controls.
        """
        return self._adding("GET", path, members)

    # Deletions can end operations that hang, so by default they do not share threads with them.
    def delete(self, path: str, members: str, workers: WorkersOf = Workers.ENDING) -> _Decorator:
        """Return a decorator that adds a function to the table as the operation ``DELETE path``.
        The method ``get`` documents ``members``."""
        return self._adding("DELETE", path, members, workers=workers)

    def post(
        self,
        path: str,
        members: str,
        status: HTTPStatus = HTTPStatus.OK,
        workers: WorkersOf = Workers.QUICK,
    ) -> _Decorator:
        """Return a decorator that adds a function to the table as the operation ``POST path``.
        ``status`` is the HTTP status of a successful response. The method ``get`` documents
        ``members``."""
        return self._adding("POST", path, members, status, workers)

    def _adding(
        self,
        method: str,
        path: str,
        members: str,
        status: HTTPStatus = HTTPStatus.OK,
        workers: WorkersOf = Workers.QUICK,
    ) -> _Decorator:
        def add(handler: Callable[..., T], /) -> Operation[T]:
            operation = Operation(handler, method, path, members, status, workers)
            # The function's name then stands for the operation, which clients pass to
            # ``ServedApi.call``. A type checker infers the type of the result from it.
            self._by_name[operation.name] = operation
            return operation

        return add
