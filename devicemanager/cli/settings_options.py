"""Flags for the settings and the devices of a kubelet, and their conversion to ``Settings``.

Each flag is a row of ``setting_flags.FLAGS``; only ``--numa`` is defined here. A flag that the user
omits has the value None, or an empty list if it can be repeated. The default of its field in
``Settings`` then applies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from devicemanager.cli.options import CommandError
from devicemanager.kubelet.setting_flags import FLAGS, Flag

if TYPE_CHECKING:
    from devicemanager.core.providers.provider import HintProvider
    from devicemanager.core.topology import NumaTopology
    from devicemanager.kubelet.settings import Settings

NumberT = TypeVar("NumberT", int, float)
Machine: TypeAlias = "tuple[NumaTopology | None, tuple[HintProvider, ...]]"
"""Pair of two values: the NUMA nodes of a machine, and the hint providers for its CPUs and memory.
If the first value is None, the kubelet adds a NUMA node when a device needs it."""

CHOICES = {flag.field: flag.choices for flag in FLAGS if flag.choices}
"""Mapping from a field of ``Settings`` to its allowed values, for fields with a fixed set of
values."""


def add_settings(parser: argparse.ArgumentParser, *groups: str, every: str | None = None) -> None:
    """Add the flags of the groups whose titles are given, such as ``topology``.

    ``every`` is a value of ``--kubelet-version`` that stands for all versions. None allows only
    single versions.
    """
    # Groups are in the order of the arguments, flags in the order of the table.
    for title in groups:
        group = parser.add_argument_group(title)
        if title == "topology":
            _add_numa(group)
        for flag in FLAGS:
            if flag.group == title:
                _add_flag(group, flag, every)


def _add_numa(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--numa",
        metavar="NODES|host|FILE",
        help="NUMA nodes of the node: IDs such as 0,1 or 0-3; `host` for the nodes, CPUs and "
        "memory of this machine; or a YAML or JSON file with nodes and optionally distances, "
        "cpus and memory (default: the nodes that the devices need, at least node 0)",
    )


def _add_flag(group: argparse._ArgumentGroup, flag: Flag, every: str | None) -> None:
    if not flag.metavar:
        # The default is None, so that the default of Settings applies.
        group.add_argument(flag.option, action="store_true", default=None, help=flag.help)
        return
    options: dict[str, Any] = {"metavar": flag.metavar, "dest": flag.field}
    if flag.choices:
        options["choices"] = flag.choices
    elif flag.kind is not str:
        options["type"] = number(flag.kind, -math.inf if flag.least is None else flag.least)
    else:
        options["type"] = _TYPES[flag.field]
    if flag.repeated:
        # One --feature-gates flag can have several gates.
        options |= {"action": "extend" if flag.field == "feature_gates" else "append"}
        options["default"] = []
    if flag.field == "kubelet_version" and every is not None:
        options["type"] = lambda text: text if text == every else _version(text)
    target: argparse._ActionsContainer = group
    # The two flags exclude each other: one sets a limit, the other removes it.
    if flag.off:
        target = group.add_mutually_exclusive_group()
        target.add_argument(
            f"--{flag.off}",
            action="store_true",
            help=f"no limit for {flag.help}",
        )
    target.add_argument(flag.option, help=_help(flag, every), **options)


def _help(flag: Flag, every: str | None) -> str:
    text = flag.help
    # Choices are added to help texts that do not explain them.
    if flag.choices and flag.choices[0] not in text:
        text += f": {', '.join(flag.choices[:-1])} or {flag.choices[-1]}"
    if flag.repeated:
        text += "; can be repeated"
    if flag.field == "kubelet_version" and every is not None:
        text += f"; `{every}` runs the checks on each anchor version"
    return f"{text} (default: {flag.default})" if flag.default else text


# -- from flags to settings --------------------------------------------------------------


def settings_from(
    args: argparse.Namespace, nodes: Iterable[int] = (), machine: Machine | None = None
) -> Settings:
    """Return the settings for the flags in ``args``.

    The NUMA nodes are those of ``--numa``. Without this flag, they are those of ``machine``.
    Without both, they are 0 to the highest number in ``nodes``. ``nodes`` has the NUMA nodes of the
    devices.

    Raises CommandError, NumaError and NumaTopologyError for an invalid machine, and
    TopologyConfigError for policy options that the kubelet would reject.
    """
    from devicemanager.core.topology import parse_policy_options

    # Checked here, because policy `none` ignores its options and would hide a mistake.
    parse_policy_options(dict(args.topology_options))
    if args.numa is not None or machine is None:
        machine = _machine(args.numa, max(nodes, default=0))
    numa, providers = machine
    return version_settings(args, numa=numa, providers=providers)


def version_settings(args: argparse.Namespace, **settings: Any) -> Settings:
    """Return ``Settings`` with the values of the flags in ``args``.

    ``settings`` has the values of further fields. Raises CommandError.
    """
    from devicemanager.core.versions.version import VersionError
    from devicemanager.kubelet.settings import Settings

    for flag in FLAGS:
        value = getattr(args, flag.field, None)
        if value is not None and value != []:
            # argparse collects pairs, but the fields are mappings.
            is_mapping = flag.field in ("feature_gates", "topology_options")
            settings[flag.field] = dict(value) if is_mapping else value
        if flag.off and getattr(args, flag.off.replace("-", "_"), False):
            # None turns the limit off, unlike an omitted flag, which leaves the default.
            settings[flag.field] = None
    try:
        return Settings(**settings)
    except VersionError as error:
        raise CommandError(str(error)) from None


def _machine(text: str | None, highest: int) -> Machine:
    """Return the NUMA nodes and providers for ``text``, the value of ``--numa``.

    Without the flag, return nodes 0 to ``highest`` and no providers. If ``highest`` is 0, return
    None as NUMA nodes: the kubelet adds nodes when devices need them.
    """
    if text is None:
        from devicemanager.core.topology import NumaTopology

        return (NumaTopology.up_to(highest) if highest else None), ()
    from devicemanager.kubelet.host.numa import read_numa

    # CPUs and memory are also aligned if the description includes them.
    machine = read_numa(text)
    providers = (machine.cpu_provider(), machine.memory_provider())
    return machine.topology, tuple(each for each in providers if each is not None)


# -- argument types ----------------------------------------------------------------------


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(
            f"invalid option {text!r}: expected NAME=VALUE, such as prefer-closest-numa-nodes=true"
        )
    return key, value


def device_resource(text: str) -> str:
    """Return the name of an extended resource unchanged. Raises ArgumentTypeError if a plugin
    cannot register it."""
    from devicemanager.core.api.names import is_extended_resource_name

    if not is_extended_resource_name(text):
        raise argparse.ArgumentTypeError(
            f"invalid resource {text!r}: expected a name with a domain, such as vendor.com/gpu"
        )
    return text


def _version(text: str) -> str:
    from devicemanager.core.versions.version import KubeletVersion, VersionError

    try:
        KubeletVersion.parse(text)
    except VersionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _gates(text: str) -> list[tuple[str, bool]]:
    found = []
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if not name or value not in ("true", "false"):
            raise argparse.ArgumentTypeError(
                f"invalid feature gate {pair!r}: expected NAME=true or NAME=false"
            )
        found.append((name, value == "true"))
    return found


def _quirk(text: str) -> str:
    from devicemanager.core.versions.quirks import QUIRKS, REFERENCE

    if text not in QUIRKS and text != REFERENCE:
        raise argparse.ArgumentTypeError(
            f"unknown quirk {text!r}: use {REFERENCE} or one of {', '.join(QUIRKS)}"
        )
    return text


def _node_name(text: str) -> str:
    from devicemanager.core.api.names import is_dns1123_subdomain

    if not is_dns1123_subdomain(text):
        raise argparse.ArgumentTypeError(
            f"invalid node name {text!r}: use lower case letters, digits, - and ."
        )
    return text


_TYPES: dict[str, Callable[[str], Any]] = {
    "kubelet_version": _version,
    "feature_gates": _gates,
    "topology_options": _pair,
    "declared_resources": device_resource,
    "quirks": _quirk,
    "node_name": _node_name,
}
"""Parsers of settings that are not numbers and have no fixed choices, by field."""


def number(kind: type[NumberT], least: float = -math.inf) -> Callable[[str], NumberT]:
    """Return a parser for a finite number of at least ``least``, for use as an argument type."""

    def read(text: str) -> NumberT:
        try:
            value = kind(text)
        except ValueError:
            value = None
        # This also rejects NaN, which compares false with everything.
        if value is None or not least <= value < math.inf:
            bound = f" of at least {least:g}" if math.isfinite(least) else ""
            expected = f"{'a whole number' if kind is int else 'a number'}{bound}"
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected {expected}")
        return value

    return read


# -- devices: RESOURCE=COUNT[@NUMA,…][,…] ------------------------------------------------

DEVICES_FORM = "RESOURCE=COUNT[@NUMA,…][,…]"
DEVICES_EXAMPLES = "vendor.com/gpu=8, vendor.com/gpu=8@0,1 or vendor.com/gpu=2@0,6@1"
DEVICES_MEANING = (
    "8@0,1: eight devices, alternating between NUMA nodes 0 and 1; 2@0,6@1: two devices on node 0, "
    "six on node 1"
)


class DeviceOption(NamedTuple):
    """A resource, and the NUMA node of each of its devices (None for a device without one)."""

    resource: str
    nodes: tuple[int | None, ...]


class OnePerResource(argparse.Action):
    """argparse action that appends the devices of a resource to a list. It rejects duplicate and
    invalid resources."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        try:
            resource = device_resource(values.resource)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        # A new list, because argparse shares the default between all parsers.
        before = getattr(namespace, self.dest)
        if resource in {each.resource for each in before}:
            text = f"duplicate resource {resource}: use one option, such as {DEVICES_EXAMPLES}"
            raise argparse.ArgumentError(self, text)
        setattr(namespace, self.dest, [*before, values])


def device_option(text: str) -> DeviceOption:
    """Parse the devices of a resource, such as ``vendor.com/gpu=8@0,1``. Raises
    ArgumentTypeError."""
    from devicemanager.kubelet.inmemory.devices import TooManyDevices, places

    # Split from the right, because the part after the resource has no equals sign.
    resource, _, groups = text.rpartition("=")
    try:
        if not resource:
            raise ValueError
        return DeviceOption(resource, places(groups))
    except TooManyDevices as error:
        raise argparse.ArgumentTypeError(f"invalid devices {text!r}: {error}") from None
    except ValueError:
        expected = f"expected {DEVICES_FORM}, such as {DEVICES_EXAMPLES}"
        raise argparse.ArgumentTypeError(f"invalid devices {text!r}: {expected}") from None
