"""Names and constants of the device plugin API, shared by both sides of the plugin socket.

``deviceplugin`` has the constants, ``names`` validates resource names, ``cdi`` CDI device
names, and ``codes`` translates gRPC status codes to Go's spelling. These are pure functions
over text: no state, no I/O, no protobuf. Rules that only one side needs do not belong here.
"""
