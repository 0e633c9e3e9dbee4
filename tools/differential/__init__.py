"""Compare the mock kubelet with the kubelet's device manager in random scenarios.

Input:  a seed, a number of scenarios and kubelet versions.
Output: the scenarios in which the two differ, each reduced to a small one.

``generating`` makes scenarios. ``reference`` runs them in the real device manager, a Go
program from ``go`` that ``building`` builds into ``.cache``; ``ours`` runs them in the mock.
``comparing`` divides both outcomes into facts and compares these; ``running`` does all of it
for many scenarios, and ``shrinking`` makes one smaller. ``recording`` stores results, so that
tests can compare without Go.

Invariants:
* A scenario depends only on its name and the kubelet version.
* The only accepted differences are the named ``deviations``, each with its reason.

Start with ``__main__``, then ``running``.
"""
