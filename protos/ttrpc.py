"""The messages of ttrpc: a request names its method, and a response has a status or a payload.

Container runtimes use ttrpc for NRI plugins. It is gRPC without HTTP/2.
"""

# Generated from ttrpc.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "Request",
    "Response",
    "Status",
]

DESCRIPTOR = file("ttrpc.proto")

Request = message("ttrpc.Request")
Response = message("ttrpc.Response")
Status = message("ttrpc.Status")
