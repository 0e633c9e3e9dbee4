"""Attacks on a kubelet: what a hostile neighbour, a full disk or a bad moment may cost.

Each attack runs against a kubelet in a process of its own, most with a good plugin beside.
What the good plugin waits, and the memory, threads and descriptors that the attack takes,
have limits; a limit that is broken, or a promise that is, fails.
"""
