"""Topology manager policies, and the validation of their settings.

The messages of ``TopologyConfigError`` and ``KubeletPanic`` are the kubelet's, character by
character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import attrs

from devicemanager.core.errors import KubeletPanic, RequestError
from devicemanager.core.messages import go_quoted
from devicemanager.core.topology.hints import Hint, Hints
from devicemanager.core.topology.merging import (
    ProviderHints,
    flatten_hints,
    merge_hints,
    merge_narrowest,
    only_single_nodes,
    reachable_masks,
)
from devicemanager.core.topology.numa import MAX_NODE_ID, NumaTopology

PREFER_CLOSEST_NUMA_NODES = "prefer-closest-numa-nodes"
MAX_ALLOWABLE_NUMA_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE_NUMA_NODES = 8
"""Default and minimum of the policy option ``max-allowable-numa-nodes``
(``defaultMaxAllowableNUMANodes``, topologymanager/topology_manager.go, v1.32)."""

# The values that Go's strconv.ParseBool accepts.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
# Not ``\d``, which also matches digits of other scripts. Go rejects these.
_INTEGER = r"[+-]?[0-9]+"
_INT64_DIGITS = 19
_INT64 = range(-(2**63), 2**63)


class TopologyConfigError(RequestError):
    """Error for topology settings with which a kubelet does not start.

    The message is the kubelet's.
    """


class PolicyName(StrEnum):
    """Name of a topology manager policy (``topologyManagerPolicy`` of the kubelet
    configuration)."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class ScopeName(StrEnum):
    """Scope of the topology manager (``topologyManagerScope`` of the kubelet configuration).

    Either each container or the whole pod is aligned to one set of NUMA nodes.
    """

    CONTAINER = "container"
    POD = "pod"


@attrs.frozen
class PolicyOptions:
    """Options of a policy (``topologyManagerPolicyOptions`` of the kubelet configuration).

    ``prefer_closest``: among sets of the same size, use the closest nodes. Default: False.
    ``max_numa_nodes``: the kubelet does not start on a machine with more nodes. Default and
    minimum: 8.
    """

    prefer_closest: bool = False
    max_numa_nodes: int = DEFAULT_MAX_ALLOWABLE_NUMA_NODES


@attrs.frozen(eq=False, repr=False)
class OptionRules:
    """The policy options that a kubelet version has, which of them are enabled, and how the kubelet
    reports invalid options."""

    levels: Mapping[str, str] = attrs.field(
        factory=lambda: {PREFER_CLOSEST_NUMA_NODES: "stable", MAX_ALLOWABLE_NUMA_NODES: "beta"}
    )
    """Stability level of each option, by option name: ``alpha``, ``beta`` or ``stable``."""
    enabled: frozenset[str] = frozenset({"beta", "stable"})
    """Stability levels whose options are enabled. The feature gate
    ``TopologyManagerPolicyAlphaOptions`` enables ``alpha``, and
    ``TopologyManagerPolicyBetaOptions`` enables ``beta``."""
    is_capital: bool = False
    """True if the error for an option of a disabled stability level starts with a capital letter
    (up to v1.32)."""
    none_checks: bool = False
    """True if the kubelet checks the options even with policy ``none`` (up to v1.27)."""

    def check(self, name: str) -> None:
        """Raise TopologyConfigError if the option is unknown or its stability level is disabled
        (``CheckPolicyOptionAvailable``, topologymanager/policy_options.go, v1.32)."""
        level = self.levels.get(name)
        if level is None:
            raise TopologyConfigError(f"unknown Topology Manager Policy option: {go_quoted(name)}")
        if level not in self.enabled:
            what = f"{level.capitalize() if self.is_capital else level}-level"
            head = (
                f"Topology Manager Policy {what} Options"
                if self.is_capital
                else f"topology manager policy {what} options"
            )
            raise TopologyConfigError(f"{head} not enabled, but option {go_quoted(name)} provided")


@attrs.frozen(eq=False, repr=False)
class TopologyPolicy:
    """A configured topology manager policy on a machine.

    It merges hints to an affinity and decides whether a pod is admitted.
    """

    topology: NumaTopology
    name: PolicyName = PolicyName.NONE
    scope: ScopeName = ScopeName.CONTAINER
    options: PolicyOptions = attrs.field(factory=PolicyOptions)
    narrowest: bool = False
    """True if hints are merged as in kubelets up to v1.23 (``MergeRule.NARROWEST``)."""
    panics: bool = False
    """True if the kubelet panics when a node ID is too large to be an index of the distances (quirk
    Q28, a kubelet bug)."""

    @property
    def asks_for_hints(self) -> bool:
        """True if the policy needs hints; policy ``none`` admits all pods without hints."""
        return self.name is not PolicyName.NONE

    def missing_nodes(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return the NUMA node IDs in ``nodes`` that the machine does not have, sorted. Negative
        IDs are left out."""
        return tuple(sorted({node for node in nodes if node >= 0}.difference(self.topology.nodes)))

    def extended_to(self, nodes: Iterable[int]) -> TopologyPolicy:
        """Return the policy for a machine that also has the given nodes and all nodes with lower
        IDs.

        Nodes with which a kubelet would not start are not added. These are IDs above 63 and, except
        with policy ``none``, IDs from ``max_numa_nodes`` on.
        """
        most = self.options.max_numa_nodes if self.asks_for_hints else MAX_NODE_ID + 1
        fitting = [node for node in self.missing_nodes(nodes) if node < min(most, MAX_NODE_ID + 1)]
        if not fitting:
            return self
        return attrs.evolve(self, topology=NumaTopology.up_to(fitting[-1]))

    def merge(self, provider_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """Return the affinity merged from all hints, and True if the policy admits the pod
        (``Policy.Merge``, topologymanager/policy_*.go, v1.32)."""
        if self.name is PolicyName.NONE:
            return Hint(None, True), True
        hints = flatten_hints(provider_hints)
        if self.name is not PolicyName.SINGLE_NUMA_NODE:
            best = self._merge(hints)
            return best, self.name is PolicyName.BEST_EFFORT or best.preferred
        single = only_single_nodes(hints)
        # Distances are not used: all remaining hints have at most one node.
        best = self._merge(single) if self.narrowest else merge_hints(self.topology, single)
        # The kubelet's default affinity is all nodes; under this policy it means no affinity.
        if best.mask == self.topology.all_mask:
            best = Hint(None, best.preferred)
        return best, best.preferred

    def _check_distances(self, hints: tuple[Hints, ...]) -> None:
        """Raise KubeletPanic if a kubelet would index a row of distances out of range (quirk Q28).

        This happens when a kubelet compares two sets of the same size by distance, and a node ID is
        not below the number of nodes (``CalculateAverageFor``, v1.32).
        """
        nodes = len(self.topology.nodes)
        masks = reachable_masks(self.topology, hints)
        sizes = Counter(mask.bit_count() for mask in masks)
        beyond = [
            mask.bit_length() - 1
            for mask in masks
            if sizes[mask.bit_count()] > 1 and mask.bit_length() > nodes
        ]
        if beyond:
            raise KubeletPanic(
                f"panic: runtime error: index out of range [{beyond[0]}] with length {nodes} (Q28)"
            )

    def _merge(self, hints: tuple[Hints, ...]) -> Hint:
        if self.narrowest:
            # Kubelets with this rule have no policy options yet, so distances do not matter.
            return merge_narrowest(self.topology, hints)
        if self.panics and self.options.prefer_closest:
            self._check_distances(hints)
        return merge_hints(self.topology, hints, self.options.prefer_closest)


def configure(
    topology: NumaTopology,
    policy: str = PolicyName.NONE,
    scope: str = ScopeName.CONTAINER,
    options: Mapping[str, str] | None = None,
    rules: OptionRules | None = None,
) -> TopologyPolicy:
    """Validate topology settings in the kubelet's order and return the policy (``NewManager``,
    topologymanager/topology_manager.go, v1.32).

    Raises TopologyConfigError for invalid settings. With policy ``none``, the scope is not
    checked here (see ``check_scope``). The options are checked with policy ``none`` only up to
    v1.27.
    """
    rules = rules or OptionRules()
    if policy == PolicyName.NONE and not rules.none_checks:
        return TopologyPolicy(topology)
    # The order of these checks decides which of several errors is reported.
    parsed = parse_policy_options(options or {}, rules)
    if parsed.prefer_closest and not topology.has_distances:
        # NewNUMAInfo (topologymanager/numa_info.go, v1.32)
        raise TopologyConfigError(
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        )
    # Kubelets up to v1.27 create policy ``none`` only after these checks.
    if policy == PolicyName.NONE:
        return TopologyPolicy(topology)
    if len(topology.nodes) > parsed.max_numa_nodes:
        raise TopologyConfigError(
            f"unsupported on machines with more than {parsed.max_numa_nodes} NUMA Nodes"
        )
    if policy not in set(PolicyName):
        raise TopologyConfigError(f'unknown policy: "{policy}"')
    check_scope(scope)
    return TopologyPolicy(topology, PolicyName(policy), ScopeName(scope), parsed)


def check_scope(scope: str) -> None:
    """Raise TopologyConfigError for an unknown scope. The kubelet checks the scope for every policy
    (``ValidateKubeletConfiguration``, pkg/kubelet/apis/config/validation, v1.32)."""
    if scope not in set(ScopeName):
        raise TopologyConfigError(f'unknown scope: "{scope}"')


def parse_policy_options(
    options: Mapping[str, str], rules: OptionRules | None = None
) -> PolicyOptions:
    """Parse the policy options of the kubelet configuration (``NewPolicyOptions``,
    topologymanager/policy_options.go, v1.32).

    Raises TopologyConfigError for an unknown option or an invalid value.
    """
    # Options are sorted, so that the first error is always the same. The kubelet's is random.
    parsed = PolicyOptions()
    rules = rules or OptionRules()
    for name in sorted(options):
        rules.check(name)
        if name == PREFER_CLOSEST_NUMA_NODES:
            parsed = attrs.evolve(parsed, prefer_closest=_parse_bool(name, options[name]))
        else:
            parsed = attrs.evolve(parsed, max_numa_nodes=_parse_max_nodes(name, options[name]))
    return parsed


def _parse_bool(name: str, value: str) -> bool:
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise TopologyConfigError(
        f"bad value for option {go_quoted(name)}: "
        f"strconv.ParseBool: parsing {go_quoted(value)}: invalid syntax"
    )


def _parse_max_nodes(name: str, value: str) -> int:
    fault = None
    if not re.fullmatch(_INTEGER, value):
        fault = "invalid syntax"
    # The length comes first, because Python's ``int`` rejects texts with more than 4300 digits.
    elif len(value.lstrip("+-0")) > _INT64_DIGITS or int(value) not in _INT64:
        fault = "value out of range"
    if fault:
        raise TopologyConfigError(
            f"unable to convert policy option to integer {go_quoted(name)}: "
            f"strconv.Atoi: parsing {go_quoted(value)}: {fault}"
        )
    if int(value) < DEFAULT_MAX_ALLOWABLE_NUMA_NODES:
        raise TopologyConfigError(
            f"the minimum value of {go_quoted(name)} should not be less than "
            f"{DEFAULT_MAX_ALLOWABLE_NUMA_NODES}"
        )
    return int(value)
