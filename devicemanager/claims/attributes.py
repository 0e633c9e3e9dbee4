"""The values that attributes of devices have, with the equality of the API."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The type of an attribute's value."""

    STRING = "string"
    INT = "int"
    QUANTITY = "quantity"
    SEMVER = "semver"


class AttributeValue(NamedTuple):
    """One value; equal to another exactly if ``EqualValue`` says so.

    Quantities are equal by amount, versions by text: ``1.0.0+a`` is not ``1.0.0+b``.
    """

    kind: Kind
    value: str | int
    """The text of a string or version, the number of an int, the nano-units of a quantity."""
