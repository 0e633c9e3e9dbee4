"""The control API of nodes in a cluster: many nodes of one process, steered from another.

What belongs here: its table of operations, their shapes, the server. What never does: the
cluster itself, which is seen by ``protocol`` alone.
"""
