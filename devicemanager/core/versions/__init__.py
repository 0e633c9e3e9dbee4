"""What differs by kubelet version, as data: behaviours, feature gates, defects.

What belongs here: tables, and what they say of one version. What never does: a look at a
version anywhere else; whoever behaves differently gets a value of ``Behaviour``.
"""
