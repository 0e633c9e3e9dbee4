"""Errors of DRA drivers."""

from __future__ import annotations

__all__ = ["ClaimError", "DroppedFields"]


class ClaimError(Exception):
    """Error of one claim. The claim's entry in the response has its text."""


class DroppedFields(Exception):
    """Error for fields of a ResourceSlice that the API server did not store.

    The text names the fields. Usually, the feature gate of a field is off.
    """
