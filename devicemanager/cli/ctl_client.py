"""Functions that the actions of ``devicemanager ctl`` share: connect, read files, print results."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from devicemanager.cli.files import STANDARD_INPUT, read_standard_input
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import clean, print_yaml
from devicemanager.control import convert, shapes
from devicemanager.control.api_client import ServedApi, served_paths, transport_to
from devicemanager.control.client import MockKubeletClient
from devicemanager.control.nodes import operations as nodes
from devicemanager.core.errors import RequestError
from devicemanager.io.safe_read import not_utf8

if TYPE_CHECKING:
    from devicemanager.kubelet.pods.pod_info import PodInfo

_WHERE: Final = "DEVICEMANAGER_CONTROL"
_TOKEN: Final = "DEVICEMANAGER_TOKEN_FILE"
_LARGEST: Final = 4 << 20


# -- connecting --------------------------------------------------------------------------


@attrs.frozen
class _Api:
    """The control API that an action needs: that of one kubelet, or that of nodes in a cluster.

    It has texts for two errors: the user gives no address, or an address of the other API.
    """

    question: str
    """First part of the error text if the user gives no address of a control API."""
    other: str
    """Path that only the other control API serves. If the server has this path, the user gave the
    address of the other API."""
    instead: str
    """Last part of the error text if the user gives the address of the other control API."""


# Both APIs use the same file names and flags, so users confuse them.
_KUBELET: Final = _Api(
    "no kubelet selected: use --control DIR (the --root of `devicemanager run`),",
    "/v1/nodes",
    "serves nodes in a cluster (`join --control`), not one kubelet: use `devicemanager ctl nodes`",
)
_NODES: Final = _Api(
    "no nodes selected: use --control DIR (the --root of `devicemanager join`),",
    "/v1/node",
    "serves one kubelet (`run --control`), not nodes in a cluster: use `devicemanager ctl` without "
    "`nodes`",
)


@contextlib.contextmanager
def connected(args: argparse.Namespace) -> Iterator[MockKubeletClient]:
    """Yield a client of the control API for one kubelet (``devicemanager run --control``).

    The user selects the address. Raises CommandError.
    """
    with _checked(args, _KUBELET) as (where, token):
        yield MockKubeletClient(where, token=token)


@contextlib.contextmanager
def connected_to_nodes(args: argparse.Namespace) -> Iterator[ServedApi]:
    """Yield a client of the control API for nodes in a cluster (``devicemanager join --control``).

    The user selects the address. Raises CommandError.
    """
    with _checked(args, _NODES) as (where, token):
        start = "start nodes with `devicemanager join --control`"
        yield ServedApi(transport_to(where, token, start), nodes.TABLE)


@contextlib.contextmanager
def _checked(args: argparse.Namespace, api: _Api) -> Iterator[tuple[str, str | None]]:
    """Yield the address that the user selects and its token (None for a socket). Raises
    CommandError.

    ``api``: the control API that the with block needs. If the block fails because the address
    serves the other one of the two control APIs, the error says so.
    """
    # The flag overrides the environment variable.
    where = args.control or os.environ.get(_WHERE)
    if not where:
        raise CommandError(f"{api.question} or set {_WHERE}")
    # Read before connecting, so that a wrong file is reported even without a server.
    token = _token(args.token_file or os.environ.get(_TOKEN))
    try:
        server = transport_to(where, token)
    except ValueError as error:
        raise CommandError(f"--control: {error}") from None
    try:
        yield where, token
    except (RequestError, CommandError) as error:
        # An action that adds a file name to an error keeps the server's error as its cause.
        cause = error if isinstance(error, RequestError) else error.__cause__
        if isinstance(cause, RequestError) and api.other in served_paths(server):
            raise CommandError(f"{server.address} {api.instead}") from None
        raise


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise CommandError(
            f"--token-file: {path} is not UTF-8 text: "
            "use control.token in the --root of `run` or `join`"
        ) from None


# -- input -------------------------------------------------------------------------------


def content(file: str) -> bytes:
    """Return the content of a text file; ``-`` is standard input. Raises CommandError and
    OSError."""
    is_input = file == STANDARD_INPUT
    found = read_standard_input(_LARGEST) if is_input else Path(file).read_bytes()
    # Checked here, because the server does not know the file's name.
    name = "standard input" if is_input else file
    if not found.strip():
        raise CommandError(f"{name}: the file is empty")
    try:
        found.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: {not_utf8(error)}") from None
    return found


def pods_named(client: MockKubeletClient, names: Sequence[str]) -> list[PodInfo]:
    """Return the kubelet's pods with these names or UIDs, in the order of ``names``. Raises
    CommandError for a name that is unknown or ambiguous."""
    return pods_among(list(client.pods().values()), "`devicemanager ctl pods` lists all", names)


def pods_among(pods: Sequence[PodInfo], advice: str, names: Sequence[str]) -> list[PodInfo]:
    """Select from ``pods`` by name or UID, and return the selected pods in the order of ``names``.

    Raises CommandError for a name that is unknown or ambiguous. The error for an unknown name ends
    with the text ``advice``.
    """
    return [_pod(pods, advice, name) for name in names]


def _pod(pods: Sequence[PodInfo], advice: str, name: str) -> PodInfo:
    # UIDs are compared first: they are unique, but a pod's name can equal another pod's UID.
    for pod in pods:
        if pod.uid == name:
            return pod
    found = [pod for pod in pods if name in (pod.name, pod.title)]
    if not found:
        raise CommandError(f"unknown pod {name!r}: {advice}")
    # Names are unique only within a namespace.
    if len(found) > 1:
        several = ", ".join(f"{pod.title} ({pod.uid})" for pod in found)
        raise CommandError(f"several pods are named {name!r}: use the UID of one of {several}")
    return found[0]


# -- output ------------------------------------------------------------------------------


def data(shape: Any) -> Any:
    """Return an object of the control API (``control.shapes``) as dicts, lists and plain values."""
    return msgspec.to_builtins(shape, enc_hook=str)


def show(shape: Any, form: str) -> None:
    """Print a response as ``json`` or ``yaml``."""
    value = data(shape)
    if form == "json":
        print(json.dumps(value, indent=2))
        return
    # In the API's order, which has the most important fields first.
    print_yaml(value)


def print_line(shape: Any, form: str) -> None:
    """Print an event or a recorded RPC on one line, as ``text`` or ``json``."""
    if form == "text":
        print(_text(shape), flush=True)
        return
    if isinstance(shape, shapes.Call):
        # The raw messages are needed only for the text, and too long to print.
        shape = msgspec.structs.replace(shape, request_bytes=None, response_bytes=None)
    print(json.dumps(data(shape)), flush=True)


def _text(shape: Any) -> str:
    if isinstance(shape, shapes.Event):
        mark = "warning: " if shape.warning else ""
        return _stamped(shape.time, f"{shape.number} {mark}{shape.kind}: {shape.message}")
    if isinstance(shape, shapes.PendingCall):
        what = f"{shape.rpc} {shape.resource or '-'} ({shape.plugin}): {shape.messages} messages"
        return _stamped(shape.time, what)
    if shape.rpc == convert.CALLS_DROPPED:
        return _stamped(shape.time, shape.message)
    return _stamped(shape.time, str(convert.call_from(shape)))


def _stamped(when: float, text: str) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(when))
    return clean(f"{clock}.{int(when % 1 * 1000):03} {text}")
