"""The answers in which the fake API server differs from kube-apiserver on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OTHER_BODIES: Mapping[str, str] = MappingProxyType(
    {
        "discovery /api": "the address of the server is left out",
        "template with another spec": "the value is shown in the form of the API",
        "list of a bad continue": "the token has another form",
        "node": "empty fields of a status are not added",
    }
)
"""Requests with the same status code and another body: what differs, by name of the request."""
EVERYWHERE = (
    "`metadata.managedFields` does not exist.",
    "`storageVersionHash` does not exist in discovery documents.",
    "If an object breaks several rules, the errors can have another order.",
    "`application/apply-patch+yaml` is refused with 415.",
    "Responses are always JSON.",
)
"""Differences that are left out before answers are compared, or that no request shows."""
