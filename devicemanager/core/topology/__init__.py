"""Topology manager: merges NUMA hints to one affinity, and decides whether to admit the pod.

Theory of operation. Each hint provider returns *hints*: the sets of NUMA nodes on which a request
for a resource fits (``hints``). The hints of all resources are *merged* into one set of nodes, the
affinity (``merging``). A *policy* decides which hints are merged, and whether the affinity is good
enough to admit the pod (``policies``). ``numa`` has the IDs of the machine's NUMA nodes and the
distances between these nodes.

All functions are pure arithmetic on sets. A set of NUMA nodes is an integer with bit ``n`` set for
node ``n``, as in the kubelet's bitmask package. A set of devices is an integer with bit ``n`` set
for device number ``n`` of a device list. This package does not use device IDs or time.

The kubelet's algorithms are exponential in the number of nodes and resources. This package
computes the same results with a few table operations over the subsets of the nodes.
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
