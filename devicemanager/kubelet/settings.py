"""All settings, with the kubelet's own values as defaults."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from checkpoint.files import Durability
from devicemanager.core.api.names import is_dns1123_subdomain, is_extended_resource_name
from devicemanager.core.ids import ResourceName
from devicemanager.core.providers.provider import CPU, HintProvider
from devicemanager.core.topology import (
    NumaTopology,
    OptionRules,
    TopologyConfigError,
    TopologyPolicy,
    check_scope,
    configure,
)
from devicemanager.core.versions.behaviour import Behaviour, resolve
from devicemanager.core.versions.quirks import QUIRKS as _ALL
from devicemanager.core.versions.quirks import REFERENCE, check_quirks, quirks_of
from devicemanager.core.versions.table import MergeRule
from devicemanager.core.versions.version import VERIFIED, KubeletVersion

if TYPE_CHECKING:
    # Loaded when a setting needs it.
    from devicemanager.core.quantity import Quantity

QUIRKS: Mapping[str, str] = MappingProxyType({name: each.text for name, each in _ALL.items()})
"""Defects of the reference that can be brought back: name to what happens then."""

KUBELET_LIST_LIMIT = 4 * 1024 * 1024


def _names(field: str, value: Iterable[str]) -> frozenset[str]:
    """The names as a set. A bare string is rejected: it would be a set of letters."""
    with contextlib.suppress(TypeError):
        names = frozenset(value)
        if not isinstance(value, str) and all(isinstance(name, str) for name in names):
            return names
    raise ValueError(f"{field} is a set of names, such as {{'…'}}: not {value!r}")


def _as_quirks(value: Iterable[str]) -> frozenset[str]:
    return frozenset((REFERENCE,)) if value == REFERENCE else _names("quirks", value)


def _as_resources(value: Iterable[ResourceName]) -> frozenset[ResourceName]:
    names = _names("declared_resources", value)
    for name in sorted(names):
        if not is_extended_resource_name(name):
            raise ValueError(
                f"declared_resources names {name!r}, which no plugin can register: a resource is "
                "named with its domain, such as vendor.com/gpu"
            )
    return frozenset(map(ResourceName, names))


def _as_namespaces(value: Iterable[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(_names("claims_admin_namespaces", value))


_Check = Callable[[object, "attrs.Attribute[Any]", Any], None]


def _number(least: float = 0, *, none: bool = False, whole: bool = False) -> _Check:
    """A number of at least ``least``; with ``none`` also None."""
    kind = "a whole number" if whole else "a number"
    wanted = f"{kind} of at least {least:g}" + (", or None for no limit" if none else "")

    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and none:
            return
        # bool is an int to Python, and nan is less than nothing and more than nothing.
        right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not right or not value >= least:
            raise ValueError(f"{field.name} is {wanted}: not {value!r}")

    return check


def _rate(settings: object, field: attrs.Attribute[Any], value: Any) -> None:
    _TIMEOUT(settings, field, value)
    if value == 0:
        raise ValueError(f"{field.name} is a number above 0, or None for no limit: not {value!r}")


def _is(kind: type | tuple[type, ...], wanted: str) -> _Check:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, kind):
            raise ValueError(f"{field.name} is {wanted}: not {value!r}")

    return check


def _node_name(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    # ValidateNodeName of pkg/apis/core/validation.
    if not isinstance(value, str) or not is_dns1123_subdomain(value):
        wanted = "a node's name, of lower case letters, digits, - and ."
        raise ValueError(f"{field.name} is {wanted}: not {value!r}")


def _as_durability(value: Any) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        levels = ", ".join(Durability)
        raise ValueError(f"durability is one of {levels}: not {value!r}") from None


def _texts(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise ValueError(f"{field.name} is a mapping of names to texts: not {value!r}")


def _as_amounts(value: Any) -> Mapping[ResourceName, Quantity]:
    if not isinstance(value, Mapping):
        raise ValueError(f"node_allocatable is a mapping of resources to amounts: not {value!r}")
    return MappingProxyType({name: _as_quantity(name, amount) for name, amount in value.items()})


def _as_quantity(name: object, amount: object) -> Quantity:
    """Any of what a manifest may give: a text or a number. A bool is neither."""
    from devicemanager.core.quantity import Quantity

    with contextlib.suppress(ValueError):
        if isinstance(amount, (str, int, float)) and not isinstance(amount, bool):
            amount = Quantity.parse(str(amount))
        if isinstance(amount, Quantity) and amount.nanos >= 0:
            return amount
    raise ValueError(
        f"node_allocatable[{name!r}] is a quantity of at least 0, such as 2, '500m' or '8Gi': "
        f"not {amount!r}"
    )


def _as_version(value: Any) -> str:
    KubeletVersion.parse(value)
    return str(value)


def _as_gates(value: Any) -> Mapping[str, bool]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"feature_gates is a mapping of names to True or False: not {value!r}")
    return MappingProxyType(dict(value))


def _options_rejected(settings: Settings) -> str:
    """``topology manager policy options … require …`` (cmd/kubelet/app/server.go, v1.28)."""
    options = " ".join(f"{name}:{text}" for name, text in sorted(settings.topology_options.items()))
    gates = ", ".join(f'"{name}"' for name in settings.behaviour.topology_options_gates)
    return f"topology manager policy options map[{options}] require feature gates {gates} enabled"


_TIMEOUT = _number(none=True)


@attrs.frozen(kw_only=True)
class Settings:
    """How a kubelet behaves. Times are in seconds; None switches a limit off.

    Raises ValueError, which names the field, for a value that cannot be, and
    TopologyConfigError for topology settings that the kubelet would reject. As with the
    kubelet, policy ``none`` takes any options.
    """

    kubelet_version: str = attrs.field(default=f"1.{VERIFIED}", converter=_as_version)
    """The kubelet whose behaviour this one has, such as ``1.28`` (its newest patch) or
    ``1.28.2``; from 1.20 on. Defects are not part of it: they are ``quirks``."""
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict, converter=_as_gates)
    """The kubelet's feature gates that are not at that version's default."""
    behaviour: Behaviour = attrs.field(init=False, eq=False, repr=False)
    """What that version does with these gates, wherever versions differ."""

    @behaviour.default
    def _behaviour(self) -> Behaviour:
        return resolve(KubeletVersion.parse(self.kubelet_version), self.feature_gates)

    dial_timeout: float = attrs.field(default=10.0, validator=_number())
    """How long Register waits for the plugin's own socket."""
    options_timeout: float | None = attrs.field(default=10.0, validator=_TIMEOUT)
    """Deadline of GetDevicePluginOptions during Register. The kubelet sets none of its
    own, but a plugin waits for the reply to Register; None waits for ever."""
    allocate_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Deadline of Allocate. The kubelet sets none: a plugin that hangs blocks the pod."""
    preferred_allocation_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Deadline of GetPreferredAllocation. The kubelet sets none."""
    pre_start_timeout: float | None = attrs.field(default=30.0, validator=_TIMEOUT)
    """Deadline of PreStartContainer, the only one the kubelet sets besides dialing."""
    grace_period: float = attrs.field(default=300.0, validator=_number())
    """How long a resource is kept after its last plugin has stopped."""
    max_list_bytes: int = attrs.field(default=KUBELET_LIST_LIMIT, validator=_number(-1, whole=True))
    """The largest ListAndWatch message that is read (Q11). The kubelet's limit is gRPC's
    default of 4 MiB; -1 switches it off."""
    max_allocate_bytes: int | None = attrs.field(
        default=1 << 20, validator=_number(1, none=True, whole=True)
    )
    """The largest answer to Allocate that is kept for a container; a pod whose plugin sends
    more is rejected. The checkpoint holds all answers and is written with every admission. The
    kubelet takes what gRPC does, 4 MiB; None does, too."""
    max_registrations_per_process: int | None = attrs.field(
        default=100, validator=_number(1, none=True, whole=True)
    )
    """How many registrations one process may hold at a time. Each costs a connection and a
    thread here; the kubelet sets no limit. Plugins in the kubelet's own process, as in
    tests, are not counted."""
    pod_resources_qps: float | None = attrs.field(validator=_rate)
    """PodResources requests a second: 100 where the version has a limit. None switches it
    off."""

    @pod_resources_qps.default
    def _pod_resources_qps(self) -> float | None:
        return 100.0 if self.behaviour.rate_limited else None

    pod_resources_burst: int = attrs.field(default=10, validator=_number(1, whole=True))
    """How many PodResources requests may come at once."""
    pod_resources_list_inactive: bool = attrs.field(validator=_is(bool, "True or False"))
    """Whether v1 List tells of pods that were rejected or have finished, until they are
    deleted: as the version does (k/k#132028). v1alpha1 always does."""

    @pod_resources_list_inactive.default
    def _pod_resources_list_inactive(self) -> bool:
        return self.behaviour.list_inactive

    calls_kept: int = attrs.field(default=5000, validator=_number(0, whole=True))
    """How many calls between the kubelet and plugins ``MockKubelet.calls`` keeps at most of
    those for pods, and as many of all others. 0 records none."""
    calls_bytes: int = attrs.field(default=16 << 20, validator=_number(0, whole=True))
    """How many bytes of requests, responses and error texts these have together at most, each
    kind."""
    health_queue_size: int = attrs.field(default=100, validator=_number(1, whole=True))
    """How many reports of changed device health wait for a reader; more are dropped."""
    durability: Durability = attrs.field(default=Durability.KUBELET, converter=_as_durability)
    """What an admission that was answered survives: ``process`` the kubelet's end by
    SIGKILL; ``kubelet`` that, with a file that is whole after a power failure, as the
    kubelet's own; ``power`` a power failure, too."""
    declared_resources: frozenset[ResourceName] = attrs.field(
        default=frozenset(), converter=_as_resources
    )
    """Resources that this node is meant to have: a pod that asks for one before any
    plugin registered it is rejected (Q14)."""
    strict: bool = attrs.field(default=False, validator=_is(bool, "True or False"))
    """Reject a pod that asks for a resource nobody ever registered, instead of running
    it without the device and a warning event, as the kubelet does."""
    wait_for_plugin: float = attrs.field(default=0.0, validator=_number())
    """After a reboot, how long an admission waits for the pod's plugins to come back
    (Q6). 0 rejects at once, as the kubelet does."""
    topology_policy: str = attrs.field(default="none", validator=_is(str, "a policy's name"))
    """``none``, ``best-effort``, ``restricted`` or ``single-numa-node``."""
    topology_scope: str = attrs.field(default="container", validator=_is(str, "a scope's name"))
    """``container`` or ``pod``."""
    topology_options: Mapping[str, str] = attrs.field(factory=dict, validator=_texts)
    """``prefer-closest-numa-nodes`` and ``max-allowable-numa-nodes``."""
    node_allocatable: Mapping[ResourceName, Quantity] = attrs.field(
        factory=dict, converter=_as_amounts
    )
    """What the node has besides devices: ``cpu``, ``memory``, ``pods`` and so on, as
    Kubernetes quantities such as ``2``, ``"500m"`` or ``"8Gi"``. What is not named is not
    checked."""
    providers: tuple[HintProvider, ...] = ()
    """CPUs and memory that take part in topology alignment and are handed out
    exclusively: ``CpuProvider``, ``MemoryProvider`` or others like them."""
    numa: NumaTopology | None = attrs.field(
        default=None,
        validator=_is(
            (NumaTopology, type(None)), "a NumaTopology, such as NumaTopology.of([0, 1])"
        ),
    )
    """The node's NUMA nodes and distances. None takes those of ``providers`` or, without
    any, as many nodes as the devices need."""
    node_name: str = attrs.field(default="mock", validator=_node_name)
    """The node whose pools of structured claims are used, beside those of no node."""
    claims_admin_namespaces: frozenset[str] | None = attrs.field(
        default=None, converter=_as_namespaces
    )
    """Namespaces whose claims may use classes with admin access. None is all."""
    sysfs: Path = attrs.field(default=Path("/sys"), converter=Path)
    """Where PCI devices that a plugin names by vendor and product id are looked up."""
    shuffle_seed: int | None = None
    """Choose free devices in a random order from this seed, since plugins must bear any
    order (Q22). None chooses the lowest ids."""
    quirks: frozenset[str] = attrs.field(default=frozenset(), converter=_as_quirks)
    """Defects of the reference to bring back for a test; see ``QUIRKS``. ``"reference"``
    stands for all that the version has. One that it never had is a ValueError."""

    topology_manager: TopologyPolicy = attrs.field(init=False, eq=False, repr=False)
    """The topology settings, checked."""

    def __attrs_post_init__(self) -> None:
        version = self.behaviour.version
        if REFERENCE in self.quirks:
            others = self.quirks - {REFERENCE}
            object.__setattr__(self, "quirks", quirks_of(version) | others)
        check_quirks(self.quirks, version)
        # Not a default: those come before the fields are checked.
        object.__setattr__(self, "topology_manager", self._topology_manager())

    def _topology_manager(self) -> TopologyPolicy:
        check_scope(self.topology_scope)
        gates = self.behaviour.gates
        if self.topology_options and not gates["TopologyManagerPolicyOptions"]:
            raise TopologyConfigError(_options_rejected(self))
        levels = (
            ("alpha", "TopologyManagerPolicyAlphaOptions"),
            (
                "beta",
                "TopologyManagerPolicyBetaOptions",
            ),
        )
        rules = OptionRules(
            self.behaviour.topology_options,
            frozenset(["stable", *(level for level, gate in levels if gates[gate])]),
            self.behaviour.capital_option_levels,
        )
        policy = configure(
            self.topology, self.topology_policy, self.topology_scope, self.topology_options, rules
        )
        is_narrowest = self.behaviour.merge_rule is MergeRule.NARROWEST
        panics = "Q28" in self.quirks
        if not (is_narrowest or panics):
            return policy
        return attrs.evolve(policy, narrowest=is_narrowest, panics=panics)

    @property
    def topology(self) -> NumaTopology:
        """The NUMA nodes that are known from the start."""
        return self.numa or self._topology_of_providers() or NumaTopology.up_to(0)

    @property
    def topology_grows(self) -> bool:
        """Whether the node gets the NUMA nodes that devices turn out to be on."""
        return self.numa is None and self._topology_of_providers() is None

    def _topology_of_providers(self) -> NumaTopology | None:
        known = (getattr(provider, "topology", None) for provider in self.providers)
        return next((each for each in known if isinstance(each, NumaTopology)), None)

    @property
    def node_amounts(self) -> Mapping[ResourceName, int]:
        """``node_allocatable`` in the units of the node check: ``cpu`` in thousandths,
        everything else in whole units, rounded up."""
        if not self.node_allocatable:
            return {}
        from devicemanager.core.quantity import milli_units, whole_units

        return {
            name: milli_units(amount.nanos) if name == CPU else whole_units(amount.nanos)
            for name, amount in self.node_allocatable.items()
        }
