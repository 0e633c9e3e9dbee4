"""The pod's status as the kubelet reports it: phase, conditions and container statuses.

``status`` builds the whole status from facts about a pod. ``phase``, ``conditions`` and
``containers`` compute its parts. ``merge`` creates the patch for the API server.
"""
