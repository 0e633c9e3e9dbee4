"""Errors of the allocator. They have the messages of Kubernetes, which users can search for."""

from __future__ import annotations

from devicemanager.claims.errors import ClaimsError


class AllocationError(ClaimsError):
    """Error for an invalid claim, class or slice. It ends the allocation on every node."""


class InvalidPools(AllocationError):
    """Error if claims do not fit on a node and at least one pool of the node is invalid.

    The claims can still fit on another node (``ErrFailedAllocationOnNode``).
    """
