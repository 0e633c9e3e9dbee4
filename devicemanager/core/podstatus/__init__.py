"""A pod's status as the kubelet makes it of facts: phase, conditions, container statuses."""
