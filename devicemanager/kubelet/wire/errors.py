"""The error for bytes of a peer."""

from __future__ import annotations

from devicemanager.core.errors import EndpointError

__all__ = ["WireError"]


class WireError(EndpointError):
    """A peer's bytes are not what the API defines. The text is one line for the user."""
