"""Admission of a pod: topology alignment, then devices for each container in turn.

``pod`` is the entry point (``admit_pod``). It computes hints if the topology policy wants
them and calls ``container`` for each container, which calls ``selection`` to choose devices.
``rules`` has what differs between kubelets; ``explain`` records why.
"""
