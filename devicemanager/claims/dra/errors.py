"""Errors of the allocator. They have upstream's messages, because users search for these."""

from __future__ import annotations

from devicemanager.claims.errors import ClaimsError


class AllocationError(ClaimsError):
    """A claim, class or slice is invalid. This ends the allocation on every node."""


class InvalidPools(AllocationError):
    """The claims do not fit on this node, and at least one of its pools is invalid.

    Another node can still fit (``ErrFailedAllocationOnNode``).
    """
