"""Targets of the control API: what a client sends."""

from __future__ import annotations

from urllib.parse import parse_qsl

from tools.fuzz.files import one_line
from tools.fuzz.guard import Run
from tools.fuzz.model import Target


def targets() -> list[Target]:
    """What anybody may send who reaches the control API."""
    return [
        Target(
            "control-api",
            "a request to the control API, of any client",
            _request,
            ("devicemanager.control", "devicemanager.faults"),
            (
                '"timeout"',
                '"spec"',
                '"kind"',
                '"options"',
                "since=",
                "follow=true",
                "&",
                "e9",
                "[]",
            ),
        ),
        Target(
            "control-access",
            "Host, Origin and Authorization of a request over TCP, of any client",
            _access,
            ("devicemanager.control",),
            ("127.0.0.1:8001", "[::1]:", "localhost:8001", "http://", "Bearer ", "token\n"),
        ),
    ]


class _Query:
    def __init__(self, text: str) -> None:
        self._text = text

    def multi_items(self) -> list[tuple[str, str]]:
        return parse_qsl(self._text, keep_blank_values=True)


def _request() -> Run:
    from devicemanager.control.errors import HttpError, problem_of
    from devicemanager.control.nodes import operations as nodes
    from devicemanager.control.operations import TABLE
    from devicemanager.control.request import decode_body, decode_query
    from devicemanager.control.shapes import SetFault
    from devicemanager.faults import Fault, FaultError

    def run(data: bytes) -> None:
        """The first line is the operation's name and the query, the rest the body."""
        head, _, body = data.partition(b"\n")
        name, _, query = head.decode("latin-1").partition("?")
        for operation in (*TABLE, *nodes.TABLE):
            if name not in ("", operation.name):
                continue
            try:
                decode_query(operation, _Query(query))
                asked = None if operation.body is None else decode_body(operation, body)
                if isinstance(asked, SetFault):
                    Fault.parse(asked.spec)
                    Fault.of(asked.kind, **asked.options)
            except (HttpError, FaultError) as error:
                one_line(problem_of(error).detail)

    return run


def _access() -> Run:
    from devicemanager.control.access import Access, TcpAddress
    from devicemanager.control.errors import HttpError

    accesses = [Access(TcpAddress(host, 8001), "token") for host in ("127.0.0.1", "::1", "0.0.0.0")]

    def run(data: bytes) -> None:
        host, _, rest = data.decode("latin-1").partition("\n")
        origin, _, authorization = rest.partition("\n")
        headers = {"host": host, "authorization": authorization}
        if origin:
            headers["origin"] = origin
        for access in accesses:
            try:
                access.check_sender(headers)
                access.check_token(headers)
            except HttpError as error:
                one_line(str(error))
            else:
                assert authorization.lower().startswith("bearer")
                assert authorization.split()[1:] == ["token"]

    return run
