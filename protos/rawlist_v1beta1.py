"""The lists of the device plugin API, v1beta1, with their devices as bytes.

Bytes and messages look alike on the wire: whoever reads long lists decides
which of the devices to walk.
"""

# Generated from rawlist_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "ListAndWatchResponse",
]

DESCRIPTOR = file("rawlist_v1beta1.proto")

ListAndWatchResponse = message("rawlist.ListAndWatchResponse")
