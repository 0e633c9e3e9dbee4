"""The pod's status as the kubelet reports it: phase, conditions and container statuses.

``status`` builds the whole from facts about a pod; the other modules compute its parts.
``merge`` makes the patch that is sent to the API server.
"""
