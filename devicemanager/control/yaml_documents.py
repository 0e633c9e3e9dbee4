"""What users hand to a client, as the text that the server reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from devicemanager.objects.manifests import ManifestError, document

if TYPE_CHECKING:
    from devicemanager.claims.files import ClaimSource
    from devicemanager.objects.manifests import Source

__all__ = ["manifest_text", "objects_text"]


def manifest_text(source: Source) -> bytes:
    """A pod's manifest. Raises ManifestError."""
    found = document(source)
    if isinstance(found, str):
        return found.encode()
    try:
        return json.dumps(found).encode()
    except (TypeError, ValueError) as error:
        raise ManifestError(f"the manifest cannot be written as JSON: {error}") from None


def objects_text(source: ClaimSource) -> bytes:
    """Objects of structured claims. Raises InvalidObject."""
    from devicemanager.claims.files import read_source
    from devicemanager.claims.v1alpha1.writing import to_yaml

    if isinstance(source, Mapping):
        return json.dumps(source).encode()
    return to_yaml(read_source(source)).encode()
