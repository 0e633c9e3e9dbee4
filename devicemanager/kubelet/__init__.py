"""The mock kubelet: its directories, one life of its process, and what outlives them.

What belongs here: starting, stopping and restarting the servers together, and the public
``MockKubelet``. What never does: decisions, which are the core's.
"""
