"""Damage files of kubelets in many ways, and check how devicemanager handles them.

The reports about a damaged file must be true, a repair must not lose or invent data, and nothing
may crash. A seed selects each damage, so that it can be repeated.

``ways`` damages bytes. ``checkpoints`` and ``snapshots`` check the results. ``verification``
verifies each finding of a report with independent code. ``__main__`` is the command line.
"""
