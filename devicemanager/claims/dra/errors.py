"""Errors of the allocator. Their texts are those of the original, which users search for."""

from __future__ import annotations

from devicemanager.claims.errors import ClaimsError


class AllocationError(ClaimsError):
    """An error in a claim, class or slice that ends the allocation on every node."""


class InvalidPools(AllocationError):
    """The claims do not fit on this node, and at least one of its pools is invalid.

    Another node can still fit (``ErrFailedAllocationOnNode``).
    """
