"""The plugin under test: how to start it, and how to touch its devices."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from devicemanager.conformance.outcomes import CheckError, Failed
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.printable import printable

__all__ = ["HOOKS", "Hook", "PluginUnderTest"]

HOOKS = {
    "break-device": "makes the device {id} unhealthy, or takes it away",
    "mend-device": "makes the device {id} healthy again",
    "add-device": "adds a device",
    "remove-device": "takes the device {id} away",
    "prepare": "runs before each start of the plugin",
    "cleanup": "runs after each end of the plugin",
    "misconfigure": "breaks the plugin's configuration before a start",
}
"""Each hook and what it does, for people."""

Hook = str | Callable[[Mapping[str, str]], object]
"""A shell command with placeholders, or a function that gets their values: ``id``, ``pid``,
``plugin_dir``, ``root``."""

_HOOK_SECONDS = 30.0
_PLACEHOLDERS = ("{plugin_dir}", "{kubelet_socket}", "{root}")
"""What stands for the kubelet's paths in a command and its environment."""


def _as_command(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(command, str):
        raise CheckError(f"a command is a list of words, not the text {command!r}")
    if not command:
        raise CheckError("the plugin's command is missing: give it after --")
    return tuple(os.fspath(word) for word in command)


def _as_hooks(hooks: Mapping[str, Hook]) -> dict[str, Hook]:
    for name in hooks:
        if name not in HOOKS:
            raise CheckError(f"there is no hook {name!r}: choose from {', '.join(HOOKS)}")
    return dict(hooks)


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise CheckError(f"resources are a list of names, not the text {names!r}")
    found = tuple(names)
    for name in found:
        if not isinstance(name, str) or not is_extended_resource_name(name):
            raise CheckError(
                f"no plugin can register {name!r}: a resource is named with its domain, "
                "such as vendor.com/gpu"
            )
    return found


@attrs.frozen(kw_only=True)
class PluginUnderTest:
    """A plugin that the suite starts, stops and restarts as its checks need. Raises
    CheckError for values that cannot be."""

    command: tuple[str, ...] = attrs.field(converter=_as_command)
    """The plugin's command; ``{plugin_dir}``, ``{kubelet_socket}`` and ``{root}`` stand for the
    paths of the kubelet that it is to find."""
    env: Mapping[str, str] = attrs.field(factory=dict)
    """Added to the environment, with the same placeholders."""
    cwd: str | os.PathLike[str] | None = None
    at_node_paths: bool = False
    """Whether it finds the kubelet under ``/var/lib/kubelet``, in a private mount namespace."""
    restart: Literal["never", "always"] = "never"
    """``always``: it is started again whenever it ends, as a DaemonSet's container is."""
    hooks: Mapping[str, Hook] = attrs.field(factory=dict, converter=_as_hooks)
    resources: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    """The resources it serves. Empty: what it registers in the first
    ``Limits.settle_seconds`` after its first registration."""

    @property
    def name(self) -> str:
        """The command's file name."""
        return Path(self.command[0]).name

    @property
    def advice(self) -> str:
        """What to look at if nothing comes from the plugin, by how it finds the kubelet."""
        if self.at_node_paths:
            return "it should look for kubelet.sock in /var/lib/kubelet/device-plugins"
        for what, words in (("command", self.command), ("environment", self.env.values())):
            if any(each in word for each in _PLACEHOLDERS for word in words):
                return f"it should look for kubelet.sock where its {what} says"
        return (
            "only DEVICE_PLUGIN_DIRECTORY tells it where: give it {plugin_dir} in its command or "
            "in --env, or use --at-node-paths if it has the path of a node built in"
        )

    def has(self, hook: str) -> bool:
        """Whether there is such a hook."""
        return hook in self.hooks

    def call(self, hook: str, values: Mapping[str, str]) -> None:
        """Run a hook. Raises Failed with its last lines if it fails."""
        action = self.hooks.get(hook)
        if action is None:
            return
        if callable(action):
            try:
                action(values)
            except Exception as error:  # as a command that fails: the plugin may have ended
                raise Failed(f"hook {hook} failed: {type(error).__name__}: {error}") from error
            return
        command = action
        for name, value in values.items():
            command = command.replace(f"{{{name}}}", shlex.quote(value))
        try:
            done: subprocess.CompletedProcess[Any] = subprocess.run(
                ["sh", "-c", command],
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_HOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"hook {hook} did not end in {_HOOK_SECONDS:g} s: {command}") from None
        if done.returncode != 0:
            said = printable(done.stdout.decode(errors="replace").strip()[-500:]) or "no output"
            raise Failed(f"hook {hook} ended with status {done.returncode}: {command}: {said}")
