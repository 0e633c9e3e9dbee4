"""A stress: many threads do everything to one kubelet at once, restarts of its plugin and of
itself among it.

What a thread was told stays true until the thread ends it, and at the end nothing is left.
"""
