"""Between protobuf messages and the core's values.

Everything a plugin sends is untrusted: bytes that are no message, or that say something
we cannot give a container, become one typed error and never a crash elsewhere.
"""
