"""Validators of what several value classes have: paths and permissions."""

from __future__ import annotations

import attrs

__all__ = ["absolute_path", "permission_letters"]


def absolute_path(_instance: object, attribute: attrs.Attribute[str], path: str) -> None:
    """A validator: a path from the root on."""
    if not path.startswith("/"):
        raise ValueError(f"{attribute.name} must be an absolute path: {path!r}")


def permission_letters(_instance: object, _attribute: attrs.Attribute[str], text: str) -> None:
    """A validator: permissions of the devices cgroup, each letter once."""
    if not text or set(text) - set("rwm") or len(set(text)) != len(text):
        raise ValueError(f"permissions are some of the letters r, w and m, not {text!r}")
