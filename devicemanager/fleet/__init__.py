"""Fleets: all nodes of a cluster in one archive, to find out which pods would fit on the nodes,
and what a reboot or an upgrade would do.

Theory of operation. ``collecting`` reads a cluster, and keeps only fields that concern devices and
scheduling (``fields``). A ``Fleet`` holds these objects, and optionally snapshots of nodes. A
snapshot is what a node knows about its devices (``devicemanager.snapshot``). If the fleet lacks the
snapshot of a node, ``snapshots`` makes one from the numbers of devices in the API objects. Three
modules work on each node separately, in parallel processes (``parallel``): ``counting`` counts
devices, ``fitting`` admits copies of a pod, and ``rehearsals`` rehearses steps such as a reboot.
``joining`` creates the same nodes in a test cluster.

In:  an API server or an archive; pods and steps to try.
Out: values with the results of each node. ``report`` shows them as rows and JSON data.

Invariants:

* The cluster is only read, and Secrets are never requested. Environment variables, annotations and
  configuration of drivers are not stored.
* Results say what they assume about the nodes, because the API server does not show everything
  (``report.assumptions``).
* The result does not depend on the number of processes.

Start reading with ``model``, then ``snapshots``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.fleet.archive import fleet_archive, read_fleet
    from devicemanager.fleet.collecting import collect_fleet
    from devicemanager.fleet.counting import NodeFinding, NodeUsage, Usage, usage
    from devicemanager.fleet.fitting import Candidate, NodeFit, fit
    from devicemanager.fleet.model import Fleet, FleetError, FleetNode
    from devicemanager.fleet.rehearsals import NodeRehearsal, rehearse_fleet

__all__ = [
    "Candidate",
    "Fleet",
    "FleetError",
    "FleetNode",
    "NodeFinding",
    "NodeFit",
    "NodeRehearsal",
    "NodeUsage",
    "Usage",
    "collect_fleet",
    "fit",
    "fleet_archive",
    "read_fleet",
    "rehearse_fleet",
    "usage",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Candidate": "fitting",
        "Fleet": "model",
        "FleetError": "model",
        "FleetNode": "model",
        "NodeFinding": "counting",
        "NodeFit": "fitting",
        "NodeRehearsal": "rehearsals",
        "NodeUsage": "counting",
        "Usage": "counting",
        "collect_fleet": "collecting",
        "fit": "fitting",
        "fleet_archive": "archive",
        "read_fleet": "archive",
        "rehearse_fleet": "rehearsals",
        "usage": "counting",
    },
)
