"""The node's status as the kubelet reports it: conditions, capacity and allocatable, and what
counts as a change."""
