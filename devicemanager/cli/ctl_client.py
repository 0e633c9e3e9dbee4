"""Where ``devicemanager ctl`` finds its kubelet or nodes, and what its actions share."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from devicemanager.cli.files import STANDARD_INPUT, read_standard_input
from devicemanager.cli.options import CommandError, not_installed

if TYPE_CHECKING:
    from devicemanager.control.api_client import ServedApi
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.control.shapes import Pod

_WHERE = "DEVICEMANAGER_CONTROL"
_TOKEN = "DEVICEMANAGER_TOKEN_FILE"
_LARGEST = 4 << 20


class _Api(NamedTuple):
    """What an action expects to be served."""

    question: str
    """When nobody says where."""
    other: str
    """A path of the other API alone."""
    instead: str
    """What to do if that is served."""


_KUBELET = _Api(
    "which kubelet? Give --control DIR, its root,",
    "/v1/nodes",
    "serves nodes in a cluster (`join --control`), not one kubelet: use `devicemanager ctl nodes`",
)
_NODES = _Api(
    "which nodes? Give --control DIR, the root of their `join`,",
    "/v1/node",
    "serves one kubelet (`run --control`), not nodes in a cluster: use `devicemanager ctl` without "
    "`nodes`",
)


@contextlib.contextmanager
def connected(args: argparse.Namespace) -> Iterator[MockKubeletClient]:
    """The client of the kubelet that the user names. Raises CommandError."""
    where, token = _where_and_token(args, _KUBELET)
    with _usable():
        from devicemanager.control.client import MockKubeletClient

        client = MockKubeletClient(where, token=token)
    with _told_apart(where, token, _KUBELET):
        yield client


@contextlib.contextmanager
def connected_to_nodes(args: argparse.Namespace) -> Iterator[ServedApi]:
    """The control API of the nodes that the user names. Raises CommandError."""
    where, token = _where_and_token(args, _NODES)
    with _usable():
        from devicemanager.control.api_client import ServedApi
        from devicemanager.control.nodes.operations import operation
        from devicemanager.control.transport import transport_to

        start = "start nodes with `devicemanager join --control`"
        api = ServedApi(transport_to(where, token, start), operation)
    with _told_apart(where, token, _NODES):
        yield api


def _where_and_token(args: argparse.Namespace, api: _Api) -> tuple[str, str | None]:
    where = args.control or os.environ.get(_WHERE)
    if not where:
        raise CommandError(f"{api.question} or set {_WHERE}")
    return where, _token(args.token_file or os.environ.get(_TOKEN))


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"ctl: {not_installed(error, 'control')}") from None
    except ValueError as error:
        raise CommandError(f"--control: {error}") from None


@contextlib.contextmanager
def _told_apart(where: str, token: str | None, api: _Api) -> Iterator[None]:
    """What is asked of the wrong server is not there; this says why."""
    from devicemanager.core.errors import RequestError

    try:
        yield
    except (RequestError, CommandError) as error:
        from devicemanager.control.api_client import served_paths
        from devicemanager.control.transport import transport_to

        # Actions that name a file in their error have the server's as its cause.
        if isinstance(error, RequestError) or isinstance(error.__cause__, RequestError):
            server = transport_to(where, token)
            if api.other in served_paths(server):
                raise CommandError(f"{server.address} {api.instead}") from None
        raise


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise CommandError(f"--token-file: {path} is no text, so no token either") from None


def data(shape: Any) -> Any:
    """A shape as plain data."""
    import msgspec

    return msgspec.to_builtins(shape, enc_hook=str)


def show(shape: Any, form: str) -> None:
    """One answer as ``json`` or ``yaml``."""
    value = data(shape)
    if form == "json":
        print(json.dumps(value, indent=2))
        return
    import yaml

    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def content(file: str) -> bytes:
    """The text in a file; ``-`` is standard input. Raises CommandError and OSError.

    That it is one is not left to the server, which does not know the file's name.
    """
    is_input = file == STANDARD_INPUT
    data = read_standard_input(_LARGEST) if is_input else Path(file).read_bytes()
    name = "standard input" if is_input else file
    if not data.strip():
        raise CommandError(f"{name}: there is nothing in it")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: not UTF-8 text (byte {error.start})") from None
    return data


def pods_named(client: MockKubeletClient, names: Sequence[str]) -> list[Pod]:
    """The pods of these names or UIDs, in this order. Raises CommandError."""
    return pods_among(client.ask("listPods").items, names, "`devicemanager ctl pods` lists all")


class SomePod(Protocol):
    """A pod of a kubelet, or of a node."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


AnyPod = TypeVar("AnyPod", bound=SomePod)


def pods_among(pods: Sequence[AnyPod], names: Sequence[str], advice: str) -> list[AnyPod]:
    """Those of these names or UIDs, in this order. Raises CommandError, with the advice."""
    return [_pod(pods, name, advice) for name in names]


def _pod(pods: Sequence[AnyPod], name: str, advice: str) -> AnyPod:
    for pod in pods:
        if pod.uid == name:
            return pod
    found = [pod for pod in pods if name in (pod.name, f"{pod.namespace}/{pod.name}")]
    if not found:
        raise CommandError(f"there is no pod {name!r}: {advice}")
    if len(found) > 1:
        several = ", ".join(f"{pod.namespace}/{pod.name} ({pod.uid})" for pod in found)
        raise CommandError(f"{name!r} is several pods: {several}")
    return found[0]
