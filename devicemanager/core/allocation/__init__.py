"""Admission of a pod: topology alignment, then device allocation, one container at a time.

``pod`` is the entry point (``admit_pod``). It computes topology hints if the topology policy needs
them, and calls ``container`` for each container. ``container`` calls ``selection`` to choose
devices. ``rules`` has the rules that differ between kubelet versions. ``explain`` builds the
explanation of the result.
"""
