"""Names of CDI devices, ``vendor.com/class=name``.

The rules are those of the Container Device Interface (``ValidateVendorName``,
``ValidateClassName``, ``ValidateDeviceName`` of its pkg/parser): ASCII letters, digits and a
few signs between them, a letter or a digit at both ends.
"""

from __future__ import annotations

import re

__all__ = ["is_device", "is_kind", "split_name"]

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)


def split_name(name: str) -> tuple[str, str] | None:
    """Kind and device of a fully qualified name; None if it is none."""
    kind, _, device = name.partition("=")
    return (kind, device) if is_kind(kind) and is_device(device) else None


def is_kind(kind: str) -> bool:
    """Whether the text is ``vendor/class`` with a valid vendor and class."""
    vendor, slash, class_ = kind.partition("/")
    return bool(slash and _VENDOR_OR_CLASS.fullmatch(vendor) and _VENDOR_OR_CLASS.fullmatch(class_))


def is_device(name: str) -> bool:
    """Whether the text can name a device of a kind."""
    return _DEVICE.fullmatch(name) is not None
