"""Compare the decisions of ``devicemanager.core.dra`` with the kubelet's DRA manager.

Input:  a seed, a number of scenarios and kubelet versions since 1.32.
Output: the scenarios in which the two differ, each reduced to a small one.

Scenarios have the format of the recorded ones (``tools.replay.dra_kubelet`` plays them).
``generating`` makes random ones. ``running`` runs them in the real manager, a Go program from
``go``, and in ours; ``facts`` divides both outcomes into facts. All else is that of
``tools.differential``: runs of the reference, random facts, shrinking, recording, plants.

Invariants:

* The kubelet's packages are not changed. The program reaches private fields by reflection: the
  store of the state file, to fail writes; the clock of the wiping queue; the age of health reports;
  the deadline of a call that hangs.
* The drivers are gRPC servers on sockets, and the manager's own connections and streams are used.
* The mock runs with all quirks of the version. The only accepted differences are in ``deviations``.

Start with ``running``.
"""
