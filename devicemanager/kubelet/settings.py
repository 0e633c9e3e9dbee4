"""All settings of a kubelet. The defaults are the values of the real kubelet.

Every field has a docstring with its unit and, for a limit, the value that switches it off.
``setting_flags`` lists the fields that are also command-line flags.
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
from devicemanager.core.versions.version import DEFAULT, KubeletVersion

if TYPE_CHECKING:
    # Loaded when a setting needs it.
    from devicemanager.core.quantity import Quantity

QUIRKS: Mapping[str, str] = MappingProxyType({name: each.text for name, each in _ALL.items()})
"""Known bugs of the kubelet that can be enabled. Maps the name of a bug to its effect."""

KUBELET_LIST_LIMIT = 4 * 1024 * 1024


def _invalid(field: str, value: object, expected: str) -> ValueError:
    return ValueError(f"invalid {field} {value!r}: expected {expected}")


def _names(field: str, value: Iterable[str]) -> frozenset[str]:
    """Convert the value of a field to a set of names. Raises ValueError for any other value.

    A string is rejected, because it would become a set of letters.
    """
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
    # Sorted, so that the same error is raised each time if several names are invalid.
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
    """Return a validator of numbers of at least ``least``.

    ``none``: accept None for no limit. ``whole``: accept only integers. ``above``: accept only
    numbers greater than ``least``.
    """
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    expected = f"{'a whole' if whole else 'a'} number {bound}{', or None for no limit' * none}"

    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and none:
            return
        # bool is a subclass of int. NaN fails every comparison, so it is rejected, too.
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
    """Convert a string or a number, as in a manifest, to a quantity.

    Raises ValueError that names the resource for any other value.
    """
    from devicemanager.core.quantity import Quantity

    with contextlib.suppress(ValueError):
        # bool is a subclass of int, but ``true`` is not a quantity.
        if isinstance(amount, (str, int, float)) and not isinstance(amount, bool):
            amount = Quantity.parse(str(amount))
        if isinstance(amount, Quantity) and amount.nanos >= 0:
            return amount
    expected = "a quantity of at least 0, such as 2, '500m' or '8Gi'"
    raise _invalid(f"node_allocatable[{name!r}]", amount, expected)


def _as_path(value: Any) -> Path | None:
    return None if value is None else Path(value)


def _as_version(value: Any) -> str:
    KubeletVersion.parse(value)
    return str(value)


def _as_gates(value: Any) -> Mapping[str, bool]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _invalid("feature_gates", value, "a mapping of names to True or False")
    # Read-only: Settings are frozen, and a dict inside could still be changed.
    return MappingProxyType(dict(value))


def _options_rejected(settings: Settings) -> str:
    """Return the kubelet's error for topology options whose feature gates are disabled.

    Follows cmd/kubelet/app/server.go, v1.28.
    """
    options = " ".join(f"{name}:{text}" for name, text in sorted(settings.topology_options.items()))
    gates = ", ".join(f'"{name}"' for name in settings.behaviour.topology_options_gates)
    return f"topology manager policy options map[{options}] require feature gates {gates} enabled"


_TIMEOUT = _number(none=True)


@attrs.frozen(kw_only=True)
class Settings:
    """Settings of a kubelet. Times are in seconds; None switches a limit off.

    Raises ValueError, which names the field, for an invalid value, and TopologyConfigError for
    topology settings that the kubelet would reject. As in the kubelet, the topology policy
    ``none`` accepts any topology options.
    """

    kubelet_version: str = attrs.field(default=f"1.{DEFAULT}", converter=_as_version)
    """Kubelet version to behave as, 1.20 or later: ``1.28`` (the newest patch of 1.28) or
    ``1.28.2``. Known bugs of the version are enabled separately, with ``quirks``."""
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict, converter=_as_gates)
    """Feature gates that differ from the defaults of the kubelet version: name → True or False."""
    behaviour: Behaviour = attrs.field(init=False, eq=False, repr=False)
    """Behavior of the kubelet, which results from ``kubelet_version`` and ``feature_gates``."""

    @behaviour.default
    def _behaviour(self) -> Behaviour:
        return resolve(KubeletVersion.parse(self.kubelet_version), self.feature_gates)

    dial_timeout: float = attrs.field(default=10.0, validator=_number())
    """How long, in seconds, a registration tries to connect to the plugin's socket."""
    options_timeout: float | None = attrs.field(default=10.0, validator=_TIMEOUT)
    """Timeout, in seconds, of GetDevicePluginOptions, which is called before Register is answered.
    None means no timeout, as in the real kubelet: a plugin that hangs gets no response to
    Register."""
    allocate_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Timeout of Allocate in seconds. None means no timeout, as in the real kubelet: a plugin that
    hangs blocks the pod."""
    preferred_allocation_timeout: float | None = attrs.field(default=None, validator=_TIMEOUT)
    """Timeout of GetPreferredAllocation in seconds. None means no timeout, as in the kubelet."""
    pre_start_timeout: float | None = attrs.field(default=30.0, validator=_TIMEOUT)
    """Timeout of PreStartContainer in seconds, 30 as in the kubelet. None means no timeout."""
    grace_period: float = attrs.field(default=300.0, validator=_number())
    """How long, in seconds, a resource stays in the node's capacity after its last plugin has
    disconnected."""
    max_list_bytes: int = attrs.field(default=KUBELET_LIST_LIMIT, validator=_number(-1, whole=True))
    """Size of the largest ListAndWatch message that is read, in bytes. The kubelet's limit is
    gRPC's default of 4 MiB; -1 means no limit."""
    max_allocate_bytes: int | None = attrs.field(
        default=1 << 20, validator=_number(1, none=True, whole=True)
    )
    """Size of the largest Allocate response for a container, in bytes; a pod with a larger response
    is rejected. The checkpoint has all responses and is written with every admission. None removes
    the limit, as in the kubelet; gRPC's limit of 4 MiB remains."""
    max_registrations_per_process: int | None = attrs.field(
        default=100, validator=_number(1, none=True, whole=True)
    )
    """Number of registrations that one plugin process may have at a time, because each needs a
    connection and a thread in the kubelet. None means no limit, as in the real kubelet. Plugins in
    the kubelet's own process, as in tests, are not counted."""
    max_registrations: int | None = attrs.field(
        default=500, validator=_number(1, none=True, whole=True)
    )
    """Number of registrations that all plugin processes may have together. One process can have at
    most a quarter of the registrations that are left. So processes that fork cannot use all
    registrations. None means no limit, as in the real kubelet. Plugins in the kubelet's own process
    are not counted. DRA drivers are counted separately, with the same limits."""
    pod_resources_qps: float | None = attrs.field(validator=_number(none=True, above=True))
    """Rate limit of the PodResources API, in requests per second. The kubelet's Pods API (KEP-4188)
    has the same limit. None means no limit. The default is 100, or None if the kubelet version has
    no limit."""

    @pod_resources_qps.default
    def _pod_resources_qps(self) -> float | None:
        return 100.0 if self.behaviour.rate_limited else None

    pod_resources_burst: int = attrs.field(default=10, validator=_number(1, whole=True))
    """Number of requests that may exceed the rate limit in a burst."""
    pod_resources_list_inactive: bool = attrs.field(validator=_is(bool, "True or False"))
    """True if List of PodResources v1 includes rejected and finished pods until they are deleted
    (kubernetes/kubernetes#132028). The default depends on the version. List of v1alpha1 always
    includes these pods."""

    @pod_resources_list_inactive.default
    def _pod_resources_list_inactive(self) -> bool:
        return self.behaviour.list_inactive

    calls_kept: int = attrs.field(default=5000, validator=_number(0, whole=True))
    """Maximum number of calls that ``MockKubelet.calls`` stores. The calls made for pods and all
    other calls each have this maximum. With 0, no calls are recorded."""
    calls_bytes: int = attrs.field(default=16 << 20, validator=_number(0, whole=True))
    """Maximum size, in bytes, of the requests, responses and error texts that ``MockKubelet.calls``
    stores. The calls made for pods and all other calls each have this maximum."""
    health_queue_size: int = attrs.field(default=100, validator=_number(1, whole=True))
    """Maximum number of stored reports about changed device health. A report is stored until it is
    read. Further reports are dropped."""
    durability: Durability = attrs.field(default=Durability.KUBELET, converter=_as_durability)
    """Level of durability of the checkpoint:

    * ``process``: if the kubelet gets a SIGKILL, no write is lost.
    * ``kubelet``: after a power failure, the file is valid, but can lack the latest changes. This
      is the level of the real kubelet.
    * ``power``: a power failure loses no admission that has returned.
    """
    declared_resources: frozenset[ResourceName] = attrs.field(
        default=frozenset(), converter=_as_resources
    )
    """Resources that this node should have. A pod that requests such a resource is rejected until
    a plugin has registered the resource. With quirk Q14, this setting has no effect."""
    strict: bool = attrs.field(default=False, validator=_is(bool, "True or False"))
    """True to reject pods that request a resource no plugin has registered. By default such pods
    run without the resource, as in the kubelet, and a warning event is published."""
    wait_for_plugin: float = attrs.field(default=0.0, validator=_number())
    """How long, in seconds, an admission after a reboot waits for the pod's plugins to re-register.
    With 0 the pod is rejected immediately, as by the real kubelet."""
    topology_policy: str = attrs.field(default="none", validator=_is(str, "the name of a policy"))
    """Policy of the Topology Manager: ``none``, ``best-effort``, ``restricted`` or
    ``single-numa-node``."""
    topology_scope: str = attrs.field(
        default="container", validator=_is(str, "the name of a scope")
    )
    """Scope of the Topology Manager: ``container`` or ``pod``."""
    topology_options: Mapping[str, str] = attrs.field(factory=dict, validator=_texts)
    """Policy options of the Topology Manager: ``prefer-closest-numa-nodes`` and
    ``max-allowable-numa-nodes``."""
    node_allocatable: Mapping[ResourceName, Quantity] = attrs.field(
        factory=dict, converter=_as_amounts
    )
    """Allocatable resources of the node other than devices: ``cpu``, ``memory``, ``pods`` and so
    on, as Kubernetes quantities such as ``2``, ``"500m"`` or ``"8Gi"``. An admission
    checks such a resource only if it is named here."""
    providers: tuple[HintProvider, ...] = ()
    """Hint providers of the Topology Manager other than the device manager, such as ``CpuProvider``
    for exclusive CPUs and ``MemoryProvider`` for memory."""
    numa: NumaTopology | None = attrs.field(
        default=None,
        validator=_is(
            (NumaTopology, type(None)), "a NumaTopology, such as NumaTopology.of([0, 1])"
        ),
    )
    """The node's NUMA nodes and distances. With None, they come from ``providers``. If no
    provider has NUMA nodes, a NUMA node is added when a plugin advertises a device on it."""
    node_name: str = attrs.field(default="mock", validator=_node_name)
    """Name of the node. The claims in ``MockKubelet.claims`` can use device pools with this node
    name, and pools without a node name."""
    claims_admin_namespaces: frozenset[str] | None = attrs.field(
        default=None, converter=_as_namespaces
    )
    """Namespaces whose claims in ``MockKubelet.claims`` may use device classes with admin access.
    None allows all namespaces."""
    kubeconfig: Path | None = attrs.field(default=None, converter=_as_path)
    """Kubeconfig file for the API server that stores the ResourceClaims and ResourceSlices of this
    node. With None, the kubelet uses the ResourceClaims that the test passes to it."""
    sysfs: Path = attrs.field(default=Path("/sys"), converter=Path)
    """Directory of sysfs, which is searched for PCI devices that a plugin names by vendor and
    product ID."""
    shuffle_seed: int | None = None
    """Seed of the random choice among free devices. With a seed, you can test that a plugin
    accepts its devices in any order, as it must. With None, the free devices with the lowest IDs
    are chosen."""
    quirks: frozenset[str] = attrs.field(default=frozenset(), converter=_as_quirks)
    """Known bugs of the kubelet to enable, by their names in ``QUIRKS``. ``"reference"`` enables
    all bugs of the version. A bug that the version does not have raises ValueError."""

    topology_manager: TopologyPolicy = attrs.field(init=False, eq=False, repr=False)
    """The topology policy that results from the ``topology_`` settings."""

    def __attrs_post_init__(self) -> None:
        version = self.behaviour.version
        # Replaced here, because the set of bugs depends on the version.
        if REFERENCE in self.quirks:
            others = self.quirks - {REFERENCE}
            object.__setattr__(self, "quirks", quirks_of(version) | others)
        check_quirks(self.quirks, version)
        # Not an attrs default: defaults are computed before the fields are validated.
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
            self.behaviour.none_checks_options,
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
        """The NUMA nodes that are known when the kubelet starts."""
        return self.numa or self._topology_of_providers() or NumaTopology.up_to(0)

    @property
    def topology_grows(self) -> bool:
        """True if the topology grows: when a plugin advertises a device on an unknown NUMA node,
        this NUMA node is added."""
        return self.numa is None and self._topology_of_providers() is None

    def _topology_of_providers(self) -> NumaTopology | None:
        known = (getattr(provider, "topology", None) for provider in self.providers)
        return next((each for each in known if isinstance(each, NumaTopology)), None)

    @property
    def node_amounts(self) -> Mapping[ResourceName, int]:
        """``node_allocatable`` as integers: ``cpu`` in thousandths, other resources in whole units.

        Whole units are rounded up.
        """
        if not self.node_allocatable:
            return {}
        from devicemanager.core.quantity import milli_units, whole_units

        return {
            name: milli_units(amount.nanos) if name == CPU else whole_units(amount.nanos)
            for name, amount in self.node_allocatable.items()
        }
