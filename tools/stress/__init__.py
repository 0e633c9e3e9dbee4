"""Many threads use one kubelet at the same time, and also restart it and its plugin.

``actor`` is one thread: it chooses its next action at random, and checks every answer against
what the kubelet has confirmed before. ``__main__`` lets actors work for some laps. After each
lap, without calls in progress, all sources must agree; then every pod is terminated, and
nothing may remain. At the end nothing may remain in the process or on disk either.
"""
