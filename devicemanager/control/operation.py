"""Operations of a control API: a function for each, and the table of them.

An operation is a function with a decorator of its table::

    @TABLE.post("/v1/pods/{uid}/finish", "finish")
    def finish_pod(kubelet: MockKubelet, uid: str, body: Finish) -> Finished:
        \"""Let every app container of a pod terminate.\"""

Everything else follows from the function: ``finishPod`` is its operationId, the docstring its
summary. The first parameter is what is controlled, ``body`` the request's body, a keyword a
parameter of the query, any other parameter a name in the path. The router, the OpenAPI
document, the client and ``devicemanager ctl`` are all made from these facts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
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

__all__ = ["Manifest", "Objects", "Operation", "OperationTable", "Stream", "Text", "Wait"]

T = TypeVar("T")


class Text(Enum):
    """Bodies that are text of the user's, in JSON or YAML."""

    MANIFEST = "a pod's manifest, as JSON or YAML"
    OBJECTS = "objects of devmgmtproto.k8s.io, as JSON or YAML"


# A text is passed on unparsed: `MockKubelet` parses it, with the same errors as in Python.
Manifest = Annotated[str, Text.MANIFEST]
Objects = Annotated[str, Text.OBJECTS]


@attrs.frozen
class Wait(Generic[T]):
    """What an operation returns that waits: the router checks until it succeeds."""

    feed: str
    """Which of the router's feeds has news when it is worth checking again."""
    timeout: float
    check: Callable[[], T]
    """Returns the answer, or raises WaitTimeout. Runs on a worker thread and does not block."""


@attrs.frozen
class Stream(Generic[T]):
    """What an operation returns whose answer is lines of JSON."""

    feed: str
    since: int
    """The number of the last entry that the client has; 0 for none."""
    follow: bool
    """True to continue with new entries until the client or the server closes."""
    wanted: Callable[[Sequence[Any]], Sequence[Any]]
    """Selects entries."""


class Operation(Generic[T]):
    """One operation; ``T`` is the type of its answer."""

    # Not an attrs class: its properties are derived from the function when they are needed.

    def __init__(
        self,
        handler: Callable[..., T],
        method: str,
        path: str,
        members: str,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        """``members`` are the members in Python that it stands for, separated by spaces."""
        self.handler = handler
        self.method = method
        self.path = path
        self.members = tuple(members.split())
        self._status = status
        # OpenAPI's convention is camelCase, and generators name functions after it.
        first, *words = handler.__name__.split("_")
        self.name = first + "".join(map(str.capitalize, words))
        """``operationId``."""
        self.summary = " ".join((handler.__doc__ or "").split())

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names in the path."""
        return tuple([part[1:-1] for part in self.path.split("/") if part.startswith("{")])

    # Types are read when they are first needed: a client uses few operations.

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the answer, of a stream that of a line; None if there is none."""
        # Clients get what a wait or a stream delivers, and not the object that describes it.
        found = self._hints["return"]
        if get_origin(found) in (Wait, Stream):
            (found,) = get_args(found)
        return None if found is type(None) else found

    @property
    def is_stream(self) -> bool:
        """True if the answer is lines of JSON."""
        return get_origin(self._hints["return"]) is Stream

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status of a success."""
        return HTTPStatus.NO_CONTENT if self.answer is None else self._status

    @property
    def body(self) -> type[msgspec.Struct] | Text | None:
        """The type of the body, or the kind of text that it is."""
        found = self._hints.get("body")
        if get_origin(found) is Annotated:
            return next(each for each in get_args(found) if isinstance(each, Text))
        return found

    @cached_property
    def query(self) -> type[msgspec.Struct] | None:
        """The parameters of the query, as a type; None if there are none."""
        # A struct, so that msgspec checks the parameters and describes them in the document.
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
    """The operations of one control API, in the order of their definition."""

    def __init__(self, title: str, description: str) -> None:
        """``description`` is Markdown for the OpenAPI document."""
        self.title = title
        self.description = description
        self._by_name: dict[str, Operation[Any]] = {}

    def __iter__(self) -> Iterator[Operation[Any]]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Operation[Any]:
        """The operation with this operationId."""
        return self._by_name[name]

    def get(self, path: str, members: str) -> _Decorator:
        """Decorate a function that only reads."""
        return self._adding("GET", path, members)

    def delete(self, path: str, members: str) -> _Decorator:
        """Decorate a function that removes something."""
        return self._adding("DELETE", path, members)

    def post(self, path: str, members: str, status: HTTPStatus = HTTPStatus.OK) -> _Decorator:
        """Decorate a function that does something."""
        return self._adding("POST", path, members, status)

    def _adding(
        self, method: str, path: str, members: str, status: HTTPStatus = HTTPStatus.OK
    ) -> _Decorator:
        def add(handler: Callable[..., T], /) -> Operation[T]:
            operation = Operation(handler, method, path, members, status)
            self._by_name[operation.name] = operation
            return operation

        return add
