"""Compare the decisions of ``devicemanager.core.dra`` with the kubelet's DRA manager.

Input:  a seed, a number of scenarios and kubelet versions since 1.32. Output: the scenarios in
which the results differ, each reduced to a small one.

Scenarios have the same format as recorded ones, which ``tools.replay.dra_kubelet`` plays.
``generating`` makes random scenarios. ``running`` runs them in the real manager (a Go program from
``go``) and in the mock. ``facts`` divides the results into facts. The other steps are those of
``tools.differential``: repeated runs of the reference, shrinking, recording and plants.

Invariants:

* The kubelet's packages are not changed. By reflection, the program changes private fields: the
  store of the state file (to fail writes), the clock of the queue that deletes slices, the age of
  health reports, and the deadline of a hanging call.
* The drivers are gRPC servers on sockets. The manager uses its own connections and streams.
* The mock runs with all quirks of the version. The only accepted differences are in ``deviations``.

Start with ``running``.
"""
