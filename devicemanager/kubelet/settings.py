"""All settings of a kubelet, with the kubelet's own values as defaults.

Every field has a docstring with its unit and the value that switches it off. ``setting_flags`` has
the fields that are also flags of a command.
"""

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
"""Known bugs of the kubelet that can be enabled: name to effect."""

KUBELET_LIST_LIMIT = 4 * 1024 * 1024


def _invalid(field: str, value: object, expected: str) -> ValueError:
    return ValueError(f"invalid {field} {value!r}: expected {expected}")


def _names(field: str, value: Iterable[str]) -> frozenset[str]:
    """Return the names as a set. Reject a string: it would become a set of letters."""
    with contextlib.suppress(TypeError):
        # TypeError for a value that cannot be iterated or hashed: the error below names the field.
        names = frozenset(value)
        if not isinstance(value, str) and all(isinstance(name, str) for name in names):
            return names
    raise _invalid(field, value, "a set of names, such as {'…'}")


def _as_quirks(value: Iterable[str]) -> frozenset[str]:
    return frozenset((REFERENCE,)) if value == REFERENCE else _names("quirks", value)


def _as_resources(value: Iterable[ResourceName]) -> frozenset[ResourceName]:
    names = _names("declared_resources", value)
    # Sorted, so that of several invalid names always the same one is reported.
    for name in sorted(names):
        if not is_extended_resource_name(name):
            raise _invalid(
                "declared_resources", name, "resource names with a domain, such as vendor.com/gpu"
            )
    return frozenset(map(ResourceName, names))


def _as_namespaces(value: Iterable[str] | None) -> frozenset[str] | None:
    return None if value is None else frozenset(_names("claims_admin_namespaces", value))


_Check = Callable[[object, "attrs.Attribute[Any]", Any], None]


def _number(
    least: float = 0, *, none: bool = False, whole: bool = False, above: bool = False
) -> _Check:
    """Check for a number from ``least`` on; with ``none``, None means no limit."""
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    expected = f"{'a whole' if whole else 'a'} number {bound}{', or None for no limit' * none}"

    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and none:
            return
        # bool is a subclass of int. nan compares false with everything, so it fails here, too.
        is_number = isinstance(value, int if whole else (int, float))
        is_number &= not isinstance(value, bool)
        if not is_number or not (value > least if above else value >= least):
            raise _invalid(field.name, value, expected)

    return check


def _is(kind: type | tuple[type, ...], expected: str) -> _Check:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, kind):
            raise _invalid(field.name, value, expected)

    return check


def _node_name(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    # ValidateNodeName of pkg/apis/core/validation.
    if not isinstance(value, str) or not is_dns1123_subdomain(value):
        raise _invalid(field.name, value, "a node name of lower case letters, digits, - and .")


def _as_durability(value: Any) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise _invalid("durability", value, f"one of {', '.join(Durability)}") from None


def _texts(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise _invalid(field.name, value, "a mapping of names to strings")


def _as_amounts(value: Any) -> Mapping[ResourceName, Quantity]:
    if not isinstance(value, Mapping):
        raise _invalid("node_allocatable", value, "a mapping of resources to quantities")
    return MappingProxyType({name: _as_quantity(name, amount) for name, amount in value.items()})


def _as_quantity(name: object, amount: object) -> Quantity:
    """Convert any form that a manifest accepts: a string or a number, but not a bool."""
    from devicemanager.core.quantity import Quantity

    with contextlib.suppress(ValueError):
        if isinstance(amount, (str, int, float)) and not isinstance(amount, bool):
            amount = Quantity.parse(str(amount))
        if isinstance(amount, Quantity) and amount.nanos >= 0:
            return amount
    expected = "a quantity of at least 0, such as 2, '500m' or '8Gi'"
    raise _invalid(f"node_allocatable[{name!r}]", amount, expected)


def _as_version(value: Any) -> str:
    KubeletVersion.parse(value)
    return str(value)


def _as_gates(value: Any) -> Mapping[str, bool]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _invalid("feature_gates", value, "a mapping of names to True or False")
    # Read-only: Settings are frozen, and a dict inside could still be changed.
    return MappingProxyType(dict(value))


def _options_rejected(settings: Settings) -> str:
    """Return the kubelet's ``topology manager policy options … require …``
    (cmd/kubelet/app/server.go, v1.28)."""
    options = " ".join(f"{name}:{text}" for name, text in sorted(settings.topology_options.items()))
    gates = ", ".join(f'"{name}"' for name in settings.behaviour.topology_options_gates)
    return f"topology manager policy options map[{options}] require feature gates {gates} enabled"


_TIMEOUT = _number(none=True)


@attrs.frozen(kw_only=True)
class Settings:
    """Behaviour of a kubelet. Times are in seconds; None switches a limit off.

    Raises ValueError, which names the field, for an invalid value, and TopologyConfigError for
    topology settings that the kubelet would reject. As in the kubelet, policy ``none`` accepts
    any options.
    """

    kubelet_version: str = attrs.field(default=f"1.{VERIFIED}", converter=_as_version)
    """Kubelet version whose behaviour to follow, from 1.20 on: ``1.28`` (its newest patch) or
    ``1.28.2``. Known bugs are not part of it; see ``quirks``."""
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict, converter=_as_gates)
    """Feature gates of the kubelet that differ from the version's defaults."""
    behaviour: Behaviour = attrs.field(init=False, eq=False, repr=False)
    """What the version does with these gates, wherever versions differ."""

    @behaviour.default
    def _behaviour(self) -> Behaviour:
        return resolve(KubeletVersion.parse(self.kubelet_version), self.feature_gates)

    dial_timeout: float = attrs.field(default=10.0, validator=_number())
    """How long a registration waits for the plugin's own socket."""
    options_timeout: float | None = attrs.field(default=10.0, validator=_TIMEOUT)
    """Timeout of GetDevicePluginOptions during Register. The kubelet sets none, but a plugin waits
    for the response to Register; None waits indefinitely."""
    allocate_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Timeout of Allocate. The kubelet sets none: a plugin that hangs blocks the pod."""
    preferred_allocation_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Timeout of GetPreferredAllocation. The kubelet sets none."""
    pre_start_timeout: float | None = attrs.field(default=30.0, validator=_TIMEOUT)
    """Timeout of PreStartContainer, the only one that the kubelet sets other than for dialing."""
    grace_period: float = attrs.field(default=300.0, validator=_number())
    """How long a resource remains after its last plugin disconnects."""
    max_list_bytes: int = attrs.field(default=KUBELET_LIST_LIMIT, validator=_number(-1, whole=True))
    """The largest ListAndWatch message that is read (Q11). The kubelet's limit is gRPC's default of
    4 MiB; -1 switches it off."""
    max_allocate_bytes: int | None = attrs.field(
        default=1 << 20, validator=_number(1, none=True, whole=True)
    )
    """The largest response to Allocate that is stored for a container; a pod whose plugin sends
    more is rejected. The checkpoint has all responses and is written with every admission. None
    switches the limit off, as in the kubelet, where gRPC's 4 MiB remain."""
    max_registrations_per_process: int | None = attrs.field(
        default=100, validator=_number(1, none=True, whole=True)
    )
    """How many registrations one process may have at a time. Each needs a connection and a thread
    here; None switches the limit off, as in the kubelet. Plugins in the kubelet's own process, as
    in tests, are not counted."""
    pod_resources_qps: float | None = attrs.field(validator=_number(none=True, above=True))
    """Requests per second of PodResources, and of the Pods API: 100 where the version has a limit.
    None switches it off."""

    @pod_resources_qps.default
    def _pod_resources_qps(self) -> float | None:
        return 100.0 if self.behaviour.rate_limited else None

    pod_resources_burst: int = attrs.field(default=10, validator=_number(1, whole=True))
    """How many of these requests may come at once."""
    pod_resources_list_inactive: bool = attrs.field(validator=_is(bool, "True or False"))
    """True if v1 List includes rejected and finished pods until they are deleted, by default as in
    the version (k/k#132028). v1alpha1 always does."""

    @pod_resources_list_inactive.default
    def _pod_resources_list_inactive(self) -> bool:
        return self.behaviour.list_inactive

    calls_kept: int = attrs.field(default=5000, validator=_number(0, whole=True))
    """How many calls ``MockKubelet.calls`` stores of those made for pods, and again of all others.
    0 records none."""
    calls_bytes: int = attrs.field(default=16 << 20, validator=_number(0, whole=True))
    """How many bytes of requests, responses and error texts these calls have, for each of the two
    kinds."""
    health_queue_size: int = attrs.field(default=100, validator=_number(1, whole=True))
    """How many reports of changed device health wait for a reader; more are dropped."""
    durability: Durability = attrs.field(default=Durability.KUBELET, converter=_as_durability)
    """What an admission survives once it has returned: ``process`` a SIGKILL of the kubelet;
    ``kubelet`` that, and a power failure leaves an intact file, as with the kubelet; ``power`` also
    a power failure."""
    declared_resources: frozenset[ResourceName] = attrs.field(
        default=frozenset(), converter=_as_resources
    )
    """Resources that this node should have: a pod that requests one before any plugin has
    registered it is rejected (Q14)."""
    strict: bool = attrs.field(default=False, validator=_is(bool, "True or False"))
    """Reject pods that request a resource no plugin has registered, instead of running them without
    it and with a warning event, as the kubelet does."""
    wait_for_plugin: float = attrs.field(default=0.0, validator=_number())
    """How long an admission waits for the pod's plugins to re-register after a reboot (Q6). 0
    rejects at once, as the kubelet does."""
    topology_policy: str = attrs.field(default="none", validator=_is(str, "the name of a policy"))
    """``none``, ``best-effort``, ``restricted`` or ``single-numa-node``."""
    topology_scope: str = attrs.field(
        default="container", validator=_is(str, "the name of a scope")
    )
    """``container`` or ``pod``."""
    topology_options: Mapping[str, str] = attrs.field(factory=dict, validator=_texts)
    """``prefer-closest-numa-nodes`` and ``max-allowable-numa-nodes``."""
    node_allocatable: Mapping[ResourceName, Quantity] = attrs.field(
        factory=dict, converter=_as_amounts
    )
    """Allocatable resources of the node other than devices: ``cpu``, ``memory``, ``pods`` and so
    on, as Kubernetes quantities such as ``2``, ``"500m"`` or ``"8Gi"``. Resources that are not
    named are not checked."""
    providers: tuple[HintProvider, ...] = ()
    """CPUs and memory that take part in topology alignment and are allocated exclusively:
    ``CpuProvider``, ``MemoryProvider`` or other hint providers."""
    numa: NumaTopology | None = attrs.field(
        default=None,
        validator=_is(
            (NumaTopology, type(None)), "a NumaTopology, such as NumaTopology.of([0, 1])"
        ),
    )
    """The node's NUMA nodes and distances. None takes those of ``providers`` or, without any, as
    many nodes as the devices need."""
    node_name: str = attrs.field(default="mock", validator=_node_name)
    """Name of the node. Structured claims can use pools with this node name, and pools without
    one."""
    claims_admin_namespaces: frozenset[str] | None = attrs.field(
        default=None, converter=_as_namespaces
    )
    """Namespaces whose claims may use classes with admin access; None allows all."""
    sysfs: Path = attrs.field(default=Path("/sys"), converter=Path)
    """Where to find PCI devices that a plugin names by vendor and product ID."""
    shuffle_seed: int | None = None
    """Choose free devices in a random order from this seed, because plugins must tolerate any order
    (Q22). None chooses the lowest IDs."""
    quirks: frozenset[str] = attrs.field(default=frozenset(), converter=_as_quirks)
    """Known bugs of the kubelet to enable for a test; see ``QUIRKS``. ``"reference"`` stands for
    all that the version has. A bug that it never had is a ValueError."""

    topology_manager: TopologyPolicy = attrs.field(init=False, eq=False, repr=False)
    """The checked topology settings."""

    def __attrs_post_init__(self) -> None:
        version = self.behaviour.version
        if REFERENCE in self.quirks:
            others = self.quirks - {REFERENCE}
            object.__setattr__(self, "quirks", quirks_of(version) | others)
        check_quirks(self.quirks, version)
        # Not a default: defaults are computed before the fields are validated.
        object.__setattr__(self, "topology_manager", self._topology_manager())

    def _topology_manager(self) -> TopologyPolicy:
        check_scope(self.topology_scope)
        gates = self.behaviour.gates
        if self.topology_options and not gates["TopologyManagerPolicyOptions"]:
            raise TopologyConfigError(_options_rejected(self))
        levels = (
            ("alpha", "TopologyManagerPolicyAlphaOptions"),
            ("beta", "TopologyManagerPolicyBetaOptions"),
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
        """The NUMA nodes known at startup."""
        return self.numa or self._topology_of_providers() or NumaTopology.up_to(0)

    @property
    def topology_grows(self) -> bool:
        """True if NUMA nodes are added when devices are found on them."""
        return self.numa is None and self._topology_of_providers() is None

    def _topology_of_providers(self) -> NumaTopology | None:
        known = (getattr(provider, "topology", None) for provider in self.providers)
        return next((each for each in known if isinstance(each, NumaTopology)), None)

    @property
    def node_amounts(self) -> Mapping[ResourceName, int]:
        """``node_allocatable`` in the units of the node check.

        ``cpu`` is in thousandths, everything else in whole units, rounded up.
        """
        if not self.node_allocatable:
            return {}
        from devicemanager.core.quantity import milli_units, whole_units

        return {
            name: milli_units(amount.nanos) if name == CPU else whole_units(amount.nanos)
            for name, amount in self.node_allocatable.items()
        }
