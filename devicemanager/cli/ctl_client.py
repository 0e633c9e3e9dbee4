"""Where ``devicemanager ctl`` finds its kubelet, and what its actions share."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import STANDARD_INPUT, read_standard_input
from devicemanager.cli.options import CommandError, not_installed

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.control.shapes import Pod

_WHERE = "DEVICEMANAGER_CONTROL"
_TOKEN = "DEVICEMANAGER_TOKEN_FILE"
_LARGEST = 4 << 20


@contextlib.contextmanager
def connected(args: argparse.Namespace) -> Iterator[MockKubeletClient]:
    """The client of the kubelet that the user names. Raises CommandError."""
    where = args.control or os.environ.get(_WHERE)
    if not where:
        raise CommandError(f"which kubelet? Give --control DIR, its root, or set {_WHERE}")
    try:
        from devicemanager.control.client import MockKubeletClient
    except ModuleNotFoundError as error:
        raise CommandError(f"ctl: {not_installed(error, 'control')}") from None
    token = _token(args.token_file or os.environ.get(_TOKEN))
    try:
        yield MockKubeletClient(where, token=token)
    except ValueError as error:
        raise CommandError(f"--control: {error}") from None


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
    pods: list[Pod] = client.ask("listPods").items
    return [_pod(pods, name) for name in names]


def _pod(pods: Sequence[Pod], name: str) -> Pod:
    for pod in pods:
        if pod.uid == name:
            return pod
    found = [pod for pod in pods if name in (pod.name, f"{pod.namespace}/{pod.name}")]
    if not found:
        raise CommandError(f"there is no pod {name!r}: `devicemanager ctl pods` lists all")
    if len(found) > 1:
        several = ", ".join(f"{pod.namespace}/{pod.name} ({pod.uid})" for pod in found)
        raise CommandError(f"{name!r} is several pods: {several}")
    return found[0]
