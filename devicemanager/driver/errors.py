"""Errors of DRA drivers."""

from __future__ import annotations

__all__ = ["ClaimError", "DroppedFields"]


class ClaimError(Exception):
    """Error of one claim. Its message becomes the error in the claim's response entry."""


class DroppedFields(Exception):
    """The API server did not store some fields of a ResourceSlice.

    The message names the fields. The usual cause is a feature gate that is off.
    """
