"""Device lists of the device plugin API, v1beta1, with each device as bytes.

Bytes and messages have the same encoding. A reader of long lists can compare
devices as bytes and decode only those that have changed.
"""

# Generated from rawlist_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "ListAndWatchResponse",
]

DESCRIPTOR = file("rawlist_v1beta1.proto")

ListAndWatchResponse = message("rawlist.ListAndWatchResponse")
