"""Settings of the plugin under test: how to start it, and hooks that change its devices."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs

from devicemanager.conformance.hardware import Hardware
from devicemanager.conformance.outcomes import CheckError, HookFailed
from devicemanager.conformance.placeholders import (
    OF_DRIVERS,
    OF_HOOKS,
    OF_PLUGINS,
    check_placeholders,
)
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.printable import printable

__all__ = ["HOOKS", "Hook", "PluginUnderTest"]

HOOKS = {
    "break-device": "makes the device {id} unhealthy, or removes it",
    "recover-device": "makes the device {id} healthy again",
    "add-device": "adds a device",
    "remove-device": "removes the device {id}",
    "prepare": "runs before each start of the plugin",
    "cleanup": "runs when a mock kubelet is closed, after each instance of the plugin has stopped",
    "misconfigure": "breaks the plugin's configuration before a start",
}
"""Purpose of each hook, by the hook's name."""

HOOKS_OF_STARTS = ("prepare", "cleanup")
"""Hooks that run before an instance of the plugin starts, or after it has stopped."""

Hook = str | Callable[[Mapping[str, str]], object]
"""A shell command with placeholders, or a function that gets a mapping with their values.

The placeholders are ``id``, ``pid``, ``plugin_dir`` and ``root``.
"""

# A hook that hangs would block its check, and in CI the whole run.
_HOOK_SECONDS = 30.0
_LONGEST_LINE = 500
_OF_INSTANCE = ("{root}", "{plugin_dir}")
"""Placeholders of hooks that name a directory of one instance of the plugin."""
_PATH = re.compile(r"(?<![\w./-])/(?:sys|dev|var/lib/kubelet)(?:/[\w.,:@+%*-]+)*")
"""Paths in a program's output about which the suite can give advice."""
_PLACEHOLDERS = tuple(f"{{{each}}}" for each in OF_PLUGINS)
"""Placeholders for the kubelet's paths in the plugin's command and environment variables."""


def _as_command(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    # A text is a sequence, too: each of its characters would become a word of the command.
    if isinstance(command, str):
        raise CheckError(f"invalid command {command!r}: expected a list of words")
    if not command:
        raise CheckError("the command is missing: add it after --")
    return tuple(os.fspath(word) for word in command)


def _as_hooks(hooks: Mapping[str, Hook]) -> dict[str, Hook]:
    for name in hooks:
        if name not in HOOKS:
            raise CheckError(f"unknown hook {name!r}: use one of {', '.join(HOOKS)}")
    return dict(hooks)


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    # A text is iterable, too: each of its characters would become a name.
    if isinstance(names, str):
        raise CheckError(f"invalid resources {names!r}: expected a list of names")
    checked = tuple(names)
    for name in checked:
        # The kubelet accepts no other names, so each check would wait until its time limit.
        if not isinstance(name, str) or not is_extended_resource_name(name):
            raise CheckError(
                f"invalid resource {name!r}: use a name with a domain, such as vendor.com/gpu"
            )
    return checked


@attrs.frozen(kw_only=True)
class PluginUnderTest:
    """Settings of the plugin that the suite starts, stops and restarts. The constructor raises
    CheckError for invalid values."""

    command: tuple[str, ...] = attrs.field(converter=_as_command)
    """Words of the plugin's command. The suite replaces ``{plugin_dir}``, ``{kubelet_socket}`` and
    ``{root}`` by the kubelet's paths."""
    env: Mapping[str, str] = attrs.field(factory=dict)
    """Additional environment variables. The placeholders of ``command`` are replaced here, too."""
    cwd: str | os.PathLike[str] | None = None
    at_node_paths: bool = False
    """True if the plugin has fixed paths below ``/var/lib/kubelet``. It is then run in a private
    mount namespace."""
    hardware: Hardware = attrs.field(factory=Hardware)
    """Hardware that the user declares. By default, the plugin discovers the hardware of this
    machine."""
    restart: Literal["never", "always"] = "never"
    """With ``always``, the suite restarts the plugin whenever it exits, as the kubelet does for a
    DaemonSet's pod. With ``never``, the suite does not restart it."""
    hooks: Mapping[str, Hook] = attrs.field(factory=dict, converter=_as_hooks)
    resources: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    """Names of the plugin's resources.

    If empty, the suite starts the plugin once and uses the resources that it registers. The suite
    waits until the plugin registers no further resource for ``Limits.settle_seconds``.
    """

    ignores_sigterm: threading.Event = attrs.field(
        init=False, factory=threading.Event, eq=False, repr=False
    )
    """Set by the suite when an instance has ignored SIGTERM. From then on, the suite stops
    instances with SIGKILL at once, unless a check examines the exit."""

    kind: ClassVar[str] = "plugin"
    """The word for the program in texts of the suite: ``plugin`` or ``driver``."""
    node_paths_option: ClassVar[str] = "--at-node-paths"
    """Option of ``devicemanager check`` for programs that expect the kubelet's files in
    ``/var/lib/kubelet``."""

    def __attrs_post_init__(self) -> None:
        # A driver has all placeholders. The suite recognizes it by those of drivers.
        names = (*OF_PLUGINS, *OF_DRIVERS)
        check_placeholders(self.command, names, "the command")
        check_placeholders(self.env.values(), names, "--env")
        for name, hook in self.hooks.items():
            if isinstance(hook, str):
                check_placeholders([hook], OF_HOOKS, f"the hook {name}")

    def has_option(self, name: str) -> bool:
        """True if the option ``name`` of ``devicemanager check`` is set. Checks can require such
        options (``Check.options``)."""
        return False

    @property
    def name(self) -> str:
        """File name of the plugin's program."""
        return Path(self.command[0]).name

    @property
    def has_node_paths(self) -> bool:
        """True if the program runs with the kubelet's files in ``/var/lib/kubelet``, as on a
        node."""
        return self.at_node_paths or self.hardware.has_directories

    @property
    def advice(self) -> str:
        """Advice to the user if the plugin does not register: where the plugin should look for
        kubelet.sock."""
        if self.at_node_paths:
            return "the plugin should use kubelet.sock in /var/lib/kubelet/device-plugins"
        # If the command or environment has a path for the plugin, the plugin seems to ignore it.
        # Otherwise the user must add one.
        for source, words in (("command", self.command), ("environment", self.env.values())):
            if any(placeholder in word for placeholder in _PLACEHOLDERS for word in words):
                return f"the plugin should use kubelet.sock in the directory from its {source}"
        return (
            "only DEVICE_PLUGIN_DIRECTORY names the directory: use {plugin_dir} in the command or "
            "in --env, or --at-node-paths if the plugin has a fixed path"
        )

    def changes_shared(self, hook: str) -> bool:
        """True if ``hook`` is defined and can change the hardware directories that the user has
        declared. All instances of the plugin share these directories.

        False for a shell command with ``{root}`` or ``{plugin_dir}``: the suite assumes that such a
        command changes only the files of one instance.
        """
        if not self.hardware.has_directories or not self.has(hook):
            return False
        command = self.hooks[hook]
        # The suite cannot see what a function changes, so it assumes shared directories.
        return callable(command) or not any(name in command for name in _OF_INSTANCE)

    @property
    def needs_one_instance(self) -> bool:
        """True if only one instance may run at a time, because the start or exit of an instance may
        change the hardware of all instances."""
        return any(map(self.changes_shared, HOOKS_OF_STARTS))

    @property
    def advice_on_devices(self) -> str:
        """Advice to the user if the program has no usable devices: which hardware to check or
        declare."""
        declared = self.hardware.declared
        if not declared:
            return "check the hardware, or declare other hardware with --dev and --sys"
        return f"check the hardware that the {self.kind} finds in {' and '.join(declared)}"

    def advice_on_output(self, lines: Sequence[str]) -> str:
        """Return advice for a program that has not registered and whose output names a missing
        path. ``lines`` are the output. Empty if no line names a missing path.

        If several lines name a missing path, the advice is about the last of these lines.
        """
        for line in reversed(lines):
            for path in _PATH.findall(line):
                if advice := self._advice_on_path(path.rstrip(".,:")):
                    return advice
        return ""

    def _advice_on_path(self, path: str) -> str:
        if path.startswith("/var/lib/kubelet"):
            if self.has_node_paths:
                return ""
            return f"{path} is a fixed path of a node: use {self.node_paths_option}"
        option, directory = self.hardware.in_place_of(path)
        if not option:
            return ""
        if directory is None:
            if os.path.lexists(path):
                return ""
            return (
                f"{path} does not exist on this machine: use --{option} DIR, with the files that "
                f"the {self.kind} needs in place of /{option}"
            )
        # Made relative, because an absolute path would replace the directory when they are joined.
        if os.path.lexists(directory / os.path.relpath(path, f"/{option}")):
            return ""
        return f"{path} does not exist in {directory} (--{option}): create it there"

    def has(self, hook: str) -> bool:
        """True if the hook with this name is defined."""
        return hook in self.hooks

    def call(self, hook: str, values: Mapping[str, str]) -> None:
        """Run a hook if it is defined. ``values`` has the values of the placeholders by name.

        Raises CheckError if the hook fails. If the hook is a shell command that exits with an
        error, the text of the CheckError has the last line of the command's output.
        """
        action = self.hooks.get(hook)
        if action is None:
            return
        if callable(action):
            try:
                action(values)
            # The hook is code of the user, which can raise anything. None of it is the plugin's
            # fault.
            except Exception as error:
                raise HookFailed(hook, f"failed: {type(error).__name__}: {error}") from error
            return
        # The values are quoted: a device ID comes from the plugin and could contain shell syntax.
        command = action
        for name, value in values.items():
            command = command.replace(f"{{{name}}}", shlex.quote(value))
        try:
            done: subprocess.CompletedProcess[Any] = subprocess.run(
                ["sh", "-c", command],
                cwd=self.cwd,
                # A hook that reads standard input would wait forever in CI.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_HOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            text = f"still runs after {_HOOK_SECONDS:g} s: {command}"
            raise HookFailed(hook, text) from None
        if done.returncode != 0:
            printed = done.stdout.decode(errors="replace").strip().splitlines()
            last = printable(printed[-1][-_LONGEST_LINE:]) if printed else "no output"
            raise HookFailed(
                hook,
                f"failed with status {done.returncode}: {last}: correct its command: {command}",
            )
