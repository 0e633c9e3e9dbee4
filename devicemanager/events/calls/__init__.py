"""What the kubelet and its plugins have asked each other, call by call.

What belongs here: the record of every RPC (``log``), one entry of it (``call``), how its
messages look as data (``rendering``), and finding calls in it (``matching``). What never
does: making a call.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.events.calls.call import Call, Direction, call_data
    from devicemanager.events.calls.log import CallLog, Mark
    from devicemanager.events.calls.matching import CallMismatch

__all__ = ["Call", "CallLog", "CallMismatch", "Direction", "Mark", "call_data"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Call": "call",
        "CallLog": "log",
        "CallMismatch": "matching",
        "Direction": "call",
        "Mark": "log",
        "call_data": "call",
    },
)
