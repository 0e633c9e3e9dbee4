"""Parsers for the flags of ``devicemanager join``: labels, taints and quantities of nodes."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicemanager.core.quantity import Quantity

__all__ = ["EFFECTS", "label_option", "quantity_option", "taint_option"]

# The API server would reject other effects only after some nodes exist.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# The API server has the same rules. Checked here, errors come before the first request.
_LABEL = re.compile(r"([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?")
_VALUE = re.compile(r"([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?")


def label_option(text: str) -> tuple[str, str]:
    """Parse a label such as ``key=value``; return key and value. Raises ArgumentTypeError."""
    key, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        raise argparse.ArgumentTypeError(f"invalid label {text!r}: expected KEY=VALUE")
    return key, value


def taint_option(text: str) -> dict[str, str]:
    """Parse a taint such as ``key=value:NoSchedule``. Raises ArgumentTypeError."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if effect not in EFFECTS or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        effects = ", ".join(EFFECTS)
        raise argparse.ArgumentTypeError(
            f"invalid taint {text!r}: expected KEY=VALUE:EFFECT, with EFFECT one of {effects}"
        )
    return {"key": key, "value": value, "effect": effect}


def quantity_option(text: str) -> Quantity:
    """Parse a positive quantity such as ``8Gi``. Raises ArgumentTypeError."""
    from devicemanager.core.quantity import Quantity

    try:
        found = Quantity.parse(text)
    except ValueError:
        found = None
    if found is None or found.nanos <= 0:
        raise argparse.ArgumentTypeError(
            f"invalid quantity {text!r}: use a form such as 2, 500m or 8Gi"
        )
    return found
