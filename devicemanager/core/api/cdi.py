"""Names of CDI devices, ``vendor.com/class=name``.

The rules are those of the Container Device Interface (``ValidateVendorName``,
``ValidateClassName``, ``ValidateDeviceName`` in its pkg/parser): ASCII letters, digits and a
few punctuation characters. Vendor and class begin with a letter, a device name with a letter or
digit. All three end with a letter or digit.
"""

from __future__ import annotations

import re

_VENDOR_OR_CLASS = r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_DEVICE = r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"


def split_name(name: str) -> tuple[str, str] | None:
    """Split a CDI device name into kind and device, such as ``vendor.com/gpu`` and ``0``.

    Returns None if the name is invalid.
    """
    kind, _, device = name.partition("=")
    return (kind, device) if is_kind(kind) and is_device(device) else None


def is_kind(kind: str) -> bool:
    """True if the text is a valid CDI kind, ``vendor/class``."""
    vendor, slash, class_ = kind.partition("/")
    return bool(slash) and all(re.fullmatch(_VENDOR_OR_CLASS, each) for each in (vendor, class_))


def is_device(name: str) -> bool:
    """True if the text is a valid device name, the part of a CDI name after ``=``."""
    return re.fullmatch(_DEVICE, name) is not None
