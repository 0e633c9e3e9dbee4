"""Topology manager: from NUMA hints to one affinity, and whether a policy admits it.

Theory of operation. Each resource that takes part in alignment gives *hints*: the sets of NUMA
nodes on which its request fits (``hints``). The hints of all resources are *merged* into one
set, the affinity (``merging``). A *policy* decides which hints are merged and whether the
result is good enough to admit the pod (``policies``). ``numa`` is the machine: node IDs and
distances.

All of it is pure arithmetic on sets. A set of NUMA nodes is an integer with bit ``n`` set for
node ``n``, as in the kubelet's bitmask package; a set of devices is an integer over the
numbering of a device list. Device IDs, the ledger and time do not appear here.

The kubelet's algorithms are exponential in the number of nodes and resources. Here the results
are the same, and the cost is that of a few table operations over the subsets of the nodes.
"""

from devicemanager.core.topology.hints import (
    DeviceLayout,
    Hint,
    Hints,
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
    "layout_hints",
    "merge_hints",
    "parse_policy_options",
    "resource_hints",
]
