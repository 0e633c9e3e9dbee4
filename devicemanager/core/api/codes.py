"""gRPC status codes as Go prints them, in the kubelet's logs and events, for example."""

from __future__ import annotations


def go_name(code: str) -> str:
    """Translate the name of a gRPC status code to Go's spelling.

    ``DEADLINE_EXCEEDED`` becomes ``DeadlineExceeded``, and ``CANCELLED`` becomes ``Canceled``.
    """
    # The exceptions in Go's spelling (String, codes/code_string.go).
    odd = {"CANCELLED": "Canceled", "OK": "OK"}
    return odd.get(code) or "".join(part.capitalize() for part in code.split("_"))
