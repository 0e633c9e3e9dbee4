"""The table of the settings of a kubelet that are also command-line flags.

A command creates a flag from each row. The table is not part of ``settings``, because building
``--help`` must not load that module: the import takes as long as the rest of the command. A test
compares the table with the fields of ``Settings``: names, defaults, bounds and choices.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FLAGS", "Flag"]


class Flag(NamedTuple):
    """Command-line flag for one field of ``Settings``."""

    field: str
    """Name of the field of ``Settings``."""
    group: str
    """Group in ``--help``: version, topology, admission or serving."""
    metavar: str
    """Unit or form of the value; empty for a flag without a value."""
    help: str
    """Text in ``--help``: one line, without the default."""
    kind: type[int] | type[float] | type[str] = str
    least: float | None = None
    """Smallest number that the flag accepts; None means no lower bound."""
    default: str = ""
    """The default as ``--help`` shows it; empty to show none."""
    name: str = ""
    """Name of the flag without dashes; empty if the flag has the name of the field."""
    choices: tuple[str, ...] = ()
    repeated: bool = False
    """True if a command line can have the flag several times. The field gets all the values."""
    off: str = ""
    """Name of a second flag, such as ``no-rate-limit``, which has no value. It sets the field to
    None, and so removes the limit. Empty for a field without such a flag."""

    @property
    def option(self) -> str:
        """The flag with its dashes, such as ``--grace-period``."""
        return f"--{self.name or self.field.replace('_', '-')}"


# Not formatted: one field per line would make the table three times as long.
FLAGS = (
    Flag(
        "kubelet_version", "version", "VERSION",
        "behave as this kubelet version, such as 1.28 or 1.28.2", default="1.37",
    ),
    Flag(
        "feature_gates", "version", "NAME=true|false[,...]",
        "feature gates of the kubelet that differ from the version's defaults", repeated=True,
    ),
    Flag(
        "topology_policy", "topology", "POLICY", "policy of the topology manager",
        default="none", choices=("none", "best-effort", "restricted", "single-numa-node"),
    ),
    Flag(
        "topology_scope", "topology", "SCOPE", "alignment scope",
        default="container", choices=("container", "pod"),
    ),
    Flag(
        "topology_options", "topology", "NAME=VALUE",
        "prefer-closest-numa-nodes=true or max-allowable-numa-nodes=N",
        name="topology-option", repeated=True,
    ),
    Flag(
        "strict", "admission", "",
        "reject pods that request a resource no plugin has registered, instead of running them "
        "without it",
    ),
    Flag(
        "declared_resources", "admission", "RESOURCE",
        "a resource that this node should have: pods that request it are rejected until a plugin "
        "has registered it", name="declare", repeated=True,
    ),
    Flag(
        "shuffle_seed", "admission", "N",
        "choose free devices at random from this seed, instead of the lowest IDs", kind=int,
    ),
    Flag(
        "quirks", "admission", "NAME",
        "enable a known bug of the kubelet, such as Q4; `reference` enables all that the version "
        "has; an unknown name lists all", name="quirk", repeated=True,
    ),
    Flag(
        "wait_for_plugin", "serving", "SECONDS",
        "how long an admission waits for its plugins after a reboot",
        kind=float, least=0, default="0",
    ),
    Flag(
        "grace_period", "serving", "SECONDS",
        "how long a resource remains after its last plugin disconnects",
        kind=float, least=0, default="300",
    ),
    Flag(
        "max_list_bytes", "serving", "N", "limit for a device list in bytes; -1 means no limit",
        kind=int, least=-1, default="4194304",
    ),
    Flag(
        "durability", "serving", "LEVEL",
        "what the checkpoint survives: process (SIGKILL), kubelet (a power failure leaves an "
        "intact file, possibly an older one), power (a power failure loses nothing)",
        default="kubelet", choices=("process", "kubelet", "power"),
    ),
    Flag(
        "node_name", "serving", "NAME",
        "name of the node; selects the pools of structured claims with this nodeName",
        name="node", default="mock",
    ),
    Flag(
        "pod_resources_qps", "serving", "N",
        "rate limit of PodResources, and of the Pods API, in requests per second",
        kind=float, least=0.001, default="100", off="no-rate-limit",
    ),
)  # fmt: skip
"""Every flag, in the order of ``--help``."""
