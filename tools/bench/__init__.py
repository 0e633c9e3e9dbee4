"""Benchmarks: the cost of the mock kubelet, compared with a baseline in the same run.

Input:  a ``Scale`` (sizes and repetitions) and the names of cases.
Output: a table with a row per measurement, as text, JSON, documentation page and SVG.

A *case* is a function that returns measurements; the modules of ``registry.MODULES`` have
them. ``model`` computes the rows, ``report`` formats them, ``environment`` starts kubelets
and plugins. ``reference`` compares with the real device manager instead.

Invariants:
* Each case runs in a new process, and its plugin in another process.
* Times that are compared are measured alternately in one run, so that noise affects both.
* No benchmark passes or fails; a missed goal is only printed.

Start with ``__main__``, then ``admission``.
"""
