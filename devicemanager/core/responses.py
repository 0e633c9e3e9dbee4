"""What containers respond to ``kubectl logs``, ``exec`` and ``port-forward``.

Containers do not run. The texts are set in advance, for example by annotations of the pod.
"""

from __future__ import annotations

from typing import Final

import attrs

__all__ = ["NO_RESPONSES", "Responses"]


@attrs.frozen
class Responses:
    """Simulated log of each container of a pod, and the responses to exec and port-forward."""

    log: str = ""
    """Text that each container logs after its start."""
    exec_output: str | None = None
    """Standard output of each command that is run with exec; None if exec is rejected."""
    exec_exit_code: int = 0
    """Exit code of each command that is run with exec."""
    port_forward: str | None = None
    """Text that each forwarded connection receives; None if connections are rejected."""


NO_RESPONSES: Final = Responses()
"""Responses of containers that log nothing, and reject exec and port-forward."""
