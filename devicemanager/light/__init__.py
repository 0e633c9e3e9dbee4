"""Light nodes: a kubelet's decisions without sockets, files and threads, by the thousand."""
