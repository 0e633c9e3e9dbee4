"""Mutation testing: change one line, see whether a test fails.

Input:  the sources of the packages, and one run of the test suite that records which test
        runs which lines (coverage contexts) and how long each test takes.
Output: counts of killed and surviving mutants, and a diff of each survivor.

``mutations`` finds the mutants of a module. ``selection`` chooses tests for a mutant.
``running`` tries it in a ``trees.Tree``. ``report`` formats the results and reads
``equivalents.toml``: mutants that no test can notice, with the reason.

Invariants:
* The repository is never changed: mutants are applied to copies below ``.cache/mutants``.
* A single failed or slow test does not kill a mutant: it must fail again, because the
  machine may be busy.

Not mutated: docstrings, comments, type annotations, log texts, f-strings, ``__all__``,
decorators, imports, labels of enum members.

Start with ``__main__``. Why not an existing tool: mutmut forks a process with gRPC loaded,
which gRPC does not survive, and skips module-level code; cosmic-ray runs the same tests for
every mutant.
"""
