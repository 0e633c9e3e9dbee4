"""A node's status as the kubelet makes it: conditions, amounts, and what counts as a change."""
