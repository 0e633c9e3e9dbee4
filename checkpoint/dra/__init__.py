"""The kubelet's file ``dra_manager_state``: model, exact text, checksum and storage.

The file holds the claims that drivers have prepared on a node. It is a JSON object with two fields:
``Data`` is a string that contains JSON (the *inner text*), and ``Checksum`` is its CRC-32.

In:   claims, or the bytes of a file of a kubelet since v1.32.
Out:  the bytes that a kubelet would write, or the claims of a file.

Invariants:
* Files are equal to the kubelet's, byte for byte, except for the order of claims. The kubelet's
  order is random. Here the caller chooses the order.
* A damaged file leads to one error with a one-line message.

Where to start reading: ``model``, ``text``, then ``reading``. ``gojson`` has the messages of Go's
JSON decoder. ``recognition``, ``inspection`` and ``repairing`` show and fix damaged files.
"""

from __future__ import annotations

from checkpoint.dra.consistency import Finding, FindingKind, inconsistencies
from checkpoint.dra.inspection import Inspection, inspect
from checkpoint.dra.model import (
    ClaimLike,
    ClaimState,
    Device,
    DeviceLike,
    DriverLike,
    DriverState,
    State,
)
from checkpoint.dra.reading import kubelet_error, loads
from checkpoint.dra.recognition import is_state_file
from checkpoint.dra.repairing import Repair, repair, without_pods
from checkpoint.dra.store import STATE_NAME, StateStore
from checkpoint.dra.text import StateDocument, checksum, dumps

__all__ = [
    "STATE_NAME",
    "ClaimLike",
    "ClaimState",
    "Device",
    "DeviceLike",
    "DriverLike",
    "DriverState",
    "Finding",
    "FindingKind",
    "Inspection",
    "Repair",
    "State",
    "StateDocument",
    "StateStore",
    "checksum",
    "dumps",
    "inconsistencies",
    "inspect",
    "is_state_file",
    "kubelet_error",
    "loads",
    "repair",
    "without_pods",
]
