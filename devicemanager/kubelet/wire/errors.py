"""The error of a peer's bytes."""

from __future__ import annotations

from devicemanager.core.errors import EndpointError

__all__ = ["WireError"]


class WireError(EndpointError):
    """A peer's bytes do not mean what the API says. The text is one line for the user."""
