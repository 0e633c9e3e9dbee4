"""Use one kubelet from many threads concurrently. The threads also restart the kubelet and its
plugin.

``actor`` has the class for one thread. An actor chooses its actions at random, and compares every
result with what the kubelet has confirmed before. ``__main__`` runs actors for some laps. After
each lap, when no calls are in progress, the kubelet, PodResources and the checkpoint must agree.
Then all pods are terminated, and no allocation may remain. At the end, no threads, descriptors or
files may remain, either.
"""
