"""Files of kubelets, damaged in many seeded ways: is what we say of them so, and is what we make
of them never worse?

``ways`` damages bytes, ``checkpoints`` and ``snapshots`` look at what our code makes of them,
``claims`` counts afresh what a report says. ``python -m tools.damage --help`` has the options.
"""
