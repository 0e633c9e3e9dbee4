"""Settings of the client under test: how to start it, and where its metrics are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.placeholders import OF_CLIENTS, check_placeholders
from devicemanager.core.api.names import is_extended_resource_name

__all__ = ["PLACEHOLDERS", "ClientUnderTest"]

PLACEHOLDERS = ("{socket}", "{root}", "{port}")
"""Placeholders in the client's command, environment variables and metrics URL."""


def _as_command(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    # A string is a sequence, too: each of its characters would become a word.
    if isinstance(command, str):
        raise CheckError(f"invalid command {command!r}: expected a list of words")
    if not command:
        raise CheckError("the client's command is missing: add it after --")
    return tuple(os.fspath(word) for word in command)


def _as_resources(names: Iterable[str]) -> tuple[str, ...]:
    checked = tuple(names)
    for name in checked:
        if not is_extended_resource_name(name):
            raise CheckError(
                f"invalid resource {name!r}: use a name with a domain, such as vendor.com/gpu"
            )
    return checked or ("vendor.com/gpu",)


def _check_url(_: object, _field: object, url: str | None) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise CheckError(
            f"invalid metrics URL {url!r}: use an address such as http://127.0.0.1:{{port}}/metrics"
        )


@attrs.frozen(kw_only=True)
class ClientUnderTest:
    """PodResources client that the suite starts and stops. Raises CheckError for invalid values."""

    command: tuple[str, ...] = attrs.field(converter=_as_command)
    """Words of the client's command. The suite replaces ``{socket}`` by the path of the
    PodResources socket, ``{root}`` by the kubelet's directory, and ``{port}`` by a free TCP
    port."""
    env: Mapping[str, str] = attrs.field(factory=dict)
    """Additional environment variables of the client. The values may contain the placeholders of
    ``command``."""
    cwd: str | os.PathLike[str] | None = None
    at_node_paths: bool = False
    """True if the paths of the client are fixed, below ``/var/lib/kubelet``. The suite then runs
    the client in a private mount namespace, in which this path is the kubelet's directory."""
    metrics: str | None = attrs.field(default=None, validator=_check_url)
    """URL of the client's Prometheus metrics; None if the client has no metrics. The URL may
    contain the placeholders of ``command``."""
    resources: tuple[str, ...] = attrs.field(default=(), converter=_as_resources)
    """Names of the resources in the scripted responses, for clients that ignore all other
    resources."""

    def __attrs_post_init__(self) -> None:
        # With a misspelled placeholder, the client would not find the socket, and C01 would blame
        # the client.
        check_placeholders(self.command, OF_CLIENTS, "the command")
        check_placeholders(self.env.values(), OF_CLIENTS, "--env")
        if self.metrics is not None:
            check_placeholders([self.metrics], OF_CLIENTS, "--metrics")

    @property
    def name(self) -> str:
        """File name of the client's program."""
        return Path(self.command[0]).name

    @property
    def needs_one_port(self) -> bool:
        """True if ``metrics`` has a fixed port, so that only one instance of the client can run at
        a time."""
        return self.metrics is not None and "{port}" not in self.metrics

    @property
    def advice(self) -> str:
        """Advice for a client that makes no call, depending on how it finds the socket."""
        if self.at_node_paths:
            return "the client should use /var/lib/kubelet/pod-resources/kubelet.sock"
        words = [*self.command, *self.env.values()]
        if any(name in word for name in ("{socket}", "{root}") for word in words):
            return "the client should use the socket from its command or environment"
        return (
            "nothing names the socket: use {socket} in the command or in --env, or --at-node-paths "
            "if the client has a fixed path"
        )
