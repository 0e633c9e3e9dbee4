"""Mutation testing: change one line of code and check whether a test fails.

Input:  the sources of the packages, and one run of the test suite. The run records which lines each
        test runs (coverage contexts) and how long the test takes.
Output: the numbers of killed and surviving mutants, and a diff of each surviving mutant.

``mutations`` finds the mutants of a module. ``selection`` selects tests for a mutant. ``running``
runs them on the mutant in a copy of the repository, a ``trees.Tree``. ``report`` formats the
results and reads ``equivalents.toml``, which lists mutants that no test can notice, with the
reason.

Invariants:
* The repository is never changed: mutants are applied to copies below ``.cache/mutants``.
* A mutant counts as killed only if a test fails twice: on a busy machine, a test can fail or run
  late once without a reason.

Not mutated: docstrings, comments, type annotations, log texts, f-strings, ``__all__``,
decorators, imports, labels of enum members.

Start with ``__main__``. Existing tools are not suitable. mutmut forks a process that has loaded
gRPC, after which gRPC does not work, and it skips module-level code. cosmic-ray runs the same tests
for every mutant.
"""
