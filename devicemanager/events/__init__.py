"""Everything that happens in a kubelet: one stream of events, and the log of RPCs."""
