"""The node's status as the kubelet reports it: conditions, capacity and allocatable. A digest
shows whether a status has changed."""
