"""Functions that expressions can call, one module for each of Kubernetes' CEL libraries.

``IMPLEMENTATIONS`` of each module maps the ID of an overload (``declarations``) to the function
that implements it. A function gets arguments of the declared types. It returns a value or raises
CelError, and has no state or side effects.
"""

from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.functions import (
    addresses,
    amounts,
    conversions,
    formats,
    formatting,
    lists,
    optionals,
    regex,
    texts,
    urls,
)

__all__ = ["IMPLEMENTATIONS", "Implementation"]

Implementation = Callable[..., Any]

IMPLEMENTATIONS: dict[str, Implementation] = {
    **addresses.IMPLEMENTATIONS,
    **amounts.IMPLEMENTATIONS,
    **conversions.IMPLEMENTATIONS,
    **formats.IMPLEMENTATIONS,
    **formatting.IMPLEMENTATIONS,
    **lists.IMPLEMENTATIONS,
    **optionals.IMPLEMENTATIONS,
    **regex.IMPLEMENTATIONS,
    **texts.IMPLEMENTATIONS,
    **urls.IMPLEMENTATIONS,
}
"""Implementations of all libraries, by overload ID."""
