"""The log of calls between the kubelet and its plugins.

Input: ``kubelet.registration`` records every RPC between the kubelet and a plugin in a
``CallLog``. Output: immutable ``Call`` values, which can be searched by criteria and written as
JSON lines (``file``).

Invariants:

* The log is bounded by number and by bytes, and recording never blocks a call.
* Messages are stored as bytes and decoded only when they are read.
* This package never makes a call.

Start reading with ``log`` (recording), then ``call`` (one entry) and ``matching`` (searches and
assertions). ``rendering`` decodes messages.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.events.calls.call import Call, Direction, call_data
    from devicemanager.events.calls.log import CallInProgress, CallLog, CallRecorder
    from devicemanager.events.calls.matching import (
        CallCriteria,
        CallFilter,
        CallMismatch,
        CallQueries,
        Mark,
    )

__all__ = [
    "Call",
    "CallCriteria",
    "CallFilter",
    "CallInProgress",
    "CallLog",
    "CallMismatch",
    "CallQueries",
    "CallRecorder",
    "Direction",
    "Mark",
    "call_data",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Call": "call",
        "CallCriteria": "matching",
        "CallFilter": "matching",
        "CallInProgress": "log",
        "CallLog": "log",
        "CallMismatch": "matching",
        "CallQueries": "matching",
        "CallRecorder": "log",
        "Direction": "call",
        "Mark": "matching",
        "call_data": "call",
    },
)
