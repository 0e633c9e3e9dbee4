"""gRPC's status codes as Go prints them, which is how the kubelet's logs and events do."""

from __future__ import annotations

__all__ = ["go_name"]


def go_name(code: str) -> str:
    """``Canceled`` of ``CANCELLED``, ``DeadlineExceeded`` of ``DEADLINE_EXCEEDED``."""
    odd = {"CANCELLED": "Canceled", "OK": "OK"}
    return odd.get(code) or "".join(part.capitalize() for part in code.split("_"))
