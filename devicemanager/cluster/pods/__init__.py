"""The pods of one node, in the kubelet's parts: what the API says of them, and what is told."""
