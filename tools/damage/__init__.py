"""Damage files of kubelets in many seeded ways, and check that devicemanager reports the truth
about them, repairs them without making anything worse, and never crashes.

``ways`` damages bytes. ``checkpoints`` and ``snapshots`` check the results. ``verification``
verifies each finding of a report with independent code. ``__main__`` is the command line.
"""
