"""The pods of the node: what is known of each, and what happens to it.

What belongs here: admission, start and end of pods and their containers, static pods, and
what PodResources may see of them. What never does: who holds which device, which is the
ledger's.
"""
