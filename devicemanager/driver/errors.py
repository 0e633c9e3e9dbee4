"""Errors of DRA drivers."""

from __future__ import annotations

__all__ = ["ClaimError", "DroppedFields"]


class ClaimError(Exception):
    """Error of one claim. Its message becomes the error in the claim's response entry.

    ``permanent``: True if every later call would fail, too (KEP-5322). Kubelets ignore this so far.
    """

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


class DroppedFields(Exception):
    """Error for fields of a ResourceSlice that the API server did not store.

    The message names the fields. The usual cause is a feature gate that is off.
    """
