"""NUMA topology: hints of where a request fits, and how hints become one affinity.

What belongs here: the machine's NUMA nodes as a value, the hints of device resources,
merging and the policies of the topology manager. What never does: devices' ids, the
ledger, anything that happens over time. A set of NUMA nodes is an integer here, with
bit ``n`` set for node ``n``, as in the kubelet's bitmask package.
"""

from devicemanager.core.topology.hints import (
    DeviceLayout,
    Hint,
    Hints,
    generate_hints,
    layout_hints,
    resource_hints,
)
from devicemanager.core.topology.merging import ProviderHints, merge_hints
from devicemanager.core.topology.numa import NumaTopology, NumaTopologyError
from devicemanager.core.topology.policies import (
    OptionRules,
    PolicyName,
    PolicyOptions,
    ScopeName,
    TopologyConfigError,
    TopologyPolicy,
    check_scope,
    configure,
    parse_policy_options,
)

__all__ = [
    "DeviceLayout",
    "Hint",
    "Hints",
    "NumaTopology",
    "NumaTopologyError",
    "OptionRules",
    "PolicyName",
    "PolicyOptions",
    "ProviderHints",
    "ScopeName",
    "TopologyConfigError",
    "TopologyPolicy",
    "check_scope",
    "configure",
    "generate_hints",
    "layout_hints",
    "merge_hints",
    "parse_policy_options",
    "resource_hints",
]
