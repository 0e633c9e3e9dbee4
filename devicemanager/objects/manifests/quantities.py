"""Resource quantities as the kubelet reads them from pods: larger amounts count as the largest.

The kubernetes package has a parser, but importing it costs a quarter of a second and it
takes what the API server rejects.
"""

from __future__ import annotations

from devicemanager.core import quantity
from devicemanager.core.quantity import LARGEST, NANOS, NANOS_PER_MILLI, milli_units, whole_units

__all__ = [
    "LARGEST",
    "NANOS",
    "NANOS_PER_MILLI",
    "milli_units",
    "parse_quantity",
    "whole_units",
]


def parse_quantity(text: str) -> int:
    """The amount in nano-units, rounded away from zero; ValueError with Go's text.

    ``ParseQuantity`` of k8s.io/apimachinery/pkg/api/resource (v1.32).
    """
    return quantity.parse_quantity(text, LARGEST)
