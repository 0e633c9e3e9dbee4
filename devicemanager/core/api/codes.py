"""gRPC status codes as Go prints them, and so the kubelet's logs and events."""

from __future__ import annotations


def go_name(code: str) -> str:
    """Translate ``DEADLINE_EXCEEDED`` to ``DeadlineExceeded``, ``CANCELLED`` to ``Canceled``."""
    # Go spells these two differently (String, codes/code_string.go).
    odd = {"CANCELLED": "Canceled", "OK": "OK"}
    return odd.get(code) or "".join(part.capitalize() for part in code.split("_"))
