"""Kill a kubelet under load again and again, and check what each kill left on disk.

``node`` is the process that is killed: it reports each answer before it continues. ``claims``
makes the claims of its pods and reads the state file of claims. ``__main__`` kills, and compares
what was reported with the files. Then the next kubelet starts in the same directory: it must
give every pod the same devices again.
"""
