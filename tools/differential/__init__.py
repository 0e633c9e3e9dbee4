"""Compare the mock kubelet with the kubelet's device manager in random scenarios.

Input:  a seed, a number of scenarios and kubelet versions. Output: the scenarios in which the
results differ, each reduced to a small one.

``generating`` makes scenarios. ``reference`` runs them in the real device manager, a Go program
from ``go`` that ``building`` builds into ``.cache``; ``ours`` runs them in the mock, with
``plugins`` in memory or on sockets. ``facts`` divides the results into facts, and ``comparing``
compares these. ``running`` does all this for many scenarios, and ``shrinking`` reduces a scenario.
``coverage`` counts the branches that scenarios reach. ``recording`` stores results, so that tests
can compare without Go. ``planting`` checks that the comparison notices wrong behaviours.

In docstrings, the real manager is called *the reference*. A *fact* is one value of a result, such
as the devices of a container. A fact is *random* if the reference's value differs between runs.

Invariants:
* A scenario depends only on its name and the kubelet version.
* The only accepted differences are in ``deviations``, and in ``quirk_deviations`` for the mock with
  its default quirks. Each names the value that the mock must have instead.
* A random fact is compared with the values that the reference had in 20 runs.

Start with ``__main__``, then ``running``.
"""
