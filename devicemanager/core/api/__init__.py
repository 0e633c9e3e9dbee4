"""Names and constants of the device plugin API, shared by both sides of the plugin socket.

``deviceplugin`` has the constants. ``names`` validates resource names, and ``cdi`` validates CDI
device names. ``codes`` translates gRPC status codes to Go's spelling. All functions are pure
functions over text: no state, no I/O, no protobuf. Rules that only the kubelet or only plugins
need do not belong here.
"""
