"""The device manager: the one lock, the core behind it, and the checkpoint that mirrors it.

What belongs here: driving the core's generators, calling plugins outside the lock, writing
the checkpoint. What never does: servers.
"""
