"""Flags for the kubelet's settings, and the settings they make.

The flags of the topology manager are named without the kubelet's ``manager-``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from devicemanager.core.providers.provider import HintProvider
    from devicemanager.core.topology import NumaTopology
    from devicemanager.kubelet.settings import Settings

NumberT = TypeVar("NumberT", int, float)

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
DURABILITIES = ("process", "kubelet", "power")
_SETTINGS = (
    "topology_policy",
    "topology_scope",
    "strict",
    "shuffle_seed",
    "wait_for_plugin",
    "grace_period",
    "max_list_bytes",
    "durability",
    "kubelet_version",
    "node_name",
)
"""Settings whose flags have their names; one that was not given keeps its default."""


def add_topology(parser: argparse.ArgumentParser) -> None:
    """NUMA nodes, and how pods are aligned to them."""
    group = parser.add_argument_group("topology")
    group.add_argument(
        "--numa",
        metavar="NODES|host|FILE",
        help="the node's NUMA nodes: 0,1 or 0-3; `host`: those of this machine, with its CPUs "
        "and memory; a YAML or JSON file with nodes and maybe distances, cpus, memory "
        "(default: as many as the devices' nodes need, at least node 0)",
    )
    group.add_argument(
        "--topology-policy",
        choices=POLICIES,
        help=f"{', '.join(POLICIES)} (default: none)",
        metavar="POLICY",
    )
    group.add_argument(
        "--topology-scope",
        choices=SCOPES,
        help="what is aligned as a whole: container (default) or pod",
        metavar="SCOPE",
    )
    group.add_argument(
        "--topology-option",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        dest="topology_options",
        help="prefer-closest-numa-nodes=true or max-allowable-numa-nodes=N; may be repeated",
    )


def add_admission(parser: argparse.ArgumentParser) -> None:
    """What an admission does otherwise than by default."""
    add_version(parser)
    group = parser.add_argument_group("admission")
    group.add_argument(
        "--strict",
        action="store_true",
        default=None,
        help="reject a pod that asks for a resource that no plugin registered, instead of running "
        "it without",
    )
    group.add_argument(
        "--declare",
        metavar="RESOURCE",
        type=device_resource,
        action="append",
        default=[],
        help="a resource this node is meant to have: pods that ask for it before any plugin "
        "registered it are rejected; may be repeated",
    )
    group.add_argument(
        "--shuffle-seed",
        metavar="N",
        type=number(int),
        help="choose free devices in a random order from this seed, not the lowest ids",
    )
    group.add_argument(
        "--quirk",
        metavar="NAME",
        type=_quirk,
        action="append",
        default=[],
        dest="quirks",
        help="bring a defect of the reference back, such as Q4, or with 'reference' all that "
        "the version has; may be repeated. An unknown name lists them",
    )


def add_version(parser: argparse.ArgumentParser, every: str | None = None) -> None:
    """Whose behaviour the kubelet has. ``every`` is a word that stands for all of them."""

    def version(text: str) -> str:
        return text if text == every else _version(text)

    also = f", or {every} for each of the anchors in turn" if every else ""
    group = parser.add_argument_group("version")
    group.add_argument(
        "--kubelet-version",
        metavar="VERSION",
        type=version,
        help=f"behave as this kubelet did, such as 1.28 or 1.28.2 (default: 1.36){also}",
    )
    group.add_argument(
        "--feature-gates",
        metavar="NAME=true|false[,...]",
        type=_gates,
        action="append",
        default=[],
        help="the kubelet's feature gates that are not at that version's default; may be repeated",
    )


def add_serving(parser: argparse.ArgumentParser) -> None:
    """How plugins and clients are served."""
    group = parser.add_argument_group("serving")
    group.add_argument(
        "--wait-for-plugin",
        metavar="SECONDS",
        type=number(float, least=0),
        help="after a reboot, how long a pod's admission waits for its plugins (default: 0)",
    )
    group.add_argument(
        "--grace-period",
        metavar="SECONDS",
        type=number(float, least=0),
        help="how long a resource stays after its last plugin has left (default: 300)",
    )
    group.add_argument(
        "--max-list-bytes",
        metavar="N",
        type=number(int, least=-1),
        help="the largest device list that is read; -1 for any (default: 4194304)",
    )
    group.add_argument(
        "--durability",
        choices=DURABILITIES,
        metavar="LEVEL",
        help="what the checkpoint survives: process (SIGKILL), kubelet (a power failure leaves "
        "it whole, at times an older one; default), power (a power failure loses nothing)",
    )
    group.add_argument(
        "--node",
        dest="node_name",
        metavar="NAME",
        type=_node_name,
        help="the node's name: of pools of structured claims that have a nodeName, those of this "
        "node are used (default: mock)",
    )
    rate = group.add_mutually_exclusive_group()
    rate.add_argument(
        "--pod-resources-qps",
        metavar="N",
        type=number(float, least=0.001),
        help="PodResources requests a second (default: 100)",
    )
    rate.add_argument(
        "--no-rate-limit", action="store_true", help="as many PodResources requests as come"
    )


Machine: TypeAlias = "tuple[NumaTopology | None, tuple[HintProvider, ...]]"
"""NUMA nodes, and what besides devices takes part in alignment."""


def settings_from(
    args: argparse.Namespace, nodes: Iterable[int] = (), machine: Machine | None = None
) -> Settings:
    """The settings that the flags stand for; ``nodes`` are the NUMA nodes of the devices, and
    ``machine`` is what there is if --numa says nothing.

    Raises NumaError and NumaTopologyError for nodes that make no machine, and
    TopologyConfigError for options of the policy that the kubelet would reject.
    """
    from devicemanager.core.topology import parse_policy_options
    from devicemanager.core.versions.version import VersionError
    from devicemanager.kubelet.settings import Settings

    # The policy `none` looks at no options; who gives some wants to know, though.
    parse_policy_options(dict(args.topology_options))
    if args.numa is not None or machine is None:
        machine = _machine(args.numa, max(nodes, default=0))
    topology, providers = machine
    given = {name: getattr(args, name, None) for name in _SETTINGS}
    given["pod_resources_qps"] = getattr(args, "pod_resources_qps", None)
    chosen = {name: value for name, value in given.items() if value is not None}
    if getattr(args, "no_rate_limit", False):
        chosen["pod_resources_qps"] = None
    try:
        return Settings(
            feature_gates=_chosen_gates(args),
            numa=topology,
            providers=providers,
            topology_options=dict(args.topology_options),
            declared_resources=frozenset(args.declare),
            quirks=frozenset(args.quirks),
            **chosen,
        )
    except VersionError as error:
        raise CommandError(str(error)) from None


def version_settings(args: argparse.Namespace, **settings: Any) -> Settings:
    """Settings with the version and the gates of the flags. Raises CommandError."""
    from devicemanager.core.versions.version import VersionError
    from devicemanager.kubelet.settings import Settings

    if args.kubelet_version is not None:
        settings["kubelet_version"] = args.kubelet_version
    try:
        return Settings(feature_gates=_chosen_gates(args), **settings)
    except VersionError as error:
        raise CommandError(str(error)) from None


def _chosen_gates(args: argparse.Namespace) -> dict[str, bool]:
    return {name: value for gates in args.feature_gates for name, value in gates}


def _machine(text: str | None, highest: int) -> Machine:
    """The NUMA nodes, and what besides devices takes part in alignment.

    Without --numa there are the nodes up to ``highest`` or, if that says nothing, as many as
    the devices turn out to need.
    """
    if text is None:
        return (_up_to(highest) if highest else None), ()
    from devicemanager.kubelet.host.numa import read_numa

    machine = read_numa(text)
    providers = (machine.cpu_provider(), machine.memory_provider())
    return machine.topology, tuple(one for one in providers if one is not None)


def _up_to(node: int) -> NumaTopology:
    from devicemanager.core.topology import NumaTopology

    return NumaTopology.up_to(node)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not like prefer-closest-numa-nodes=true")
    return key, value


def device_resource(text: str) -> str:
    """An argument's type: the name of a resource that a plugin can have."""
    from devicemanager.core.api.names import is_extended_resource_name

    if not is_extended_resource_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no device resource like vendor.com/gpu")
    return text


def _version(text: str) -> str:
    from devicemanager.core.versions.version import KubeletVersion, VersionError

    try:
        return str(KubeletVersion.parse(text))
    except VersionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _gates(text: str) -> list[tuple[str, bool]]:
    found = []
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if not name or value not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{pair!r} is not like KubeletPodResourcesGet=true")
        found.append((name, value == "true"))
    return found


def _quirk(text: str) -> str:
    from devicemanager.core.versions.quirks import QUIRKS, REFERENCE

    if text not in QUIRKS and text != REFERENCE:
        raise argparse.ArgumentTypeError(f"unknown quirk {text!r}: choose from {', '.join(QUIRKS)}")
    return text


def _node_name(text: str) -> str:
    from devicemanager.core.api.names import is_dns1123_subdomain

    if not is_dns1123_subdomain(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no node's name: use lower case letters, digits, - and ."
        )
    return text


def number(kind: type[NumberT], least: float = -math.inf) -> Callable[[str], NumberT]:
    """An argument's type: a finite number from ``least`` on."""

    def read(text: str) -> NumberT:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < math.inf:
            floor = f" from {least:g}" if math.isfinite(least) else ""
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}{floor}")
        return value

    return read
