"""Compare the mock kubelet with the kubelet's device manager in random scenarios.

Input:  a seed, a number of scenarios and kubelet versions.
Output: the scenarios in which the two differ, each reduced to a small one.

``generating`` makes scenarios. ``reference`` runs them in the real device manager, a Go
program from ``go`` that ``building`` builds into ``.cache``; ``ours`` runs them in the mock, with
``plugins`` in memory or on sockets. ``facts`` divides both outcomes into facts, and ``comparing``
compares these; ``running`` does all of it for many scenarios, and ``shrinking`` makes one smaller.
``coverage`` counts what was reached. ``recording`` stores results, so that tests can compare
without Go. ``planting`` checks that wrong behaviours are noticed.

Invariants:
* A scenario depends only on its name and the kubelet version.
* The only accepted differences are the named ``deviations``, and ``quirk_deviations`` for the mock
  with its default quirks. Each says which value the mock has instead.
* A random fact of the reference is compared with the values that it had in 20 runs.

Start with ``__main__``, then ``running``.
"""
