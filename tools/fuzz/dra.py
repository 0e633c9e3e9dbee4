"""Drive a generator of the DRA manager with one response, without sockets and files."""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.core.dra.effects import Answer, CallDriver, FetchClaim, Steps
from devicemanager.core.dra.model import ResourceClaim


def drive(steps: Steps, claim: ResourceClaim, respond: Callable[[], Answer]) -> None:
    """Run a generator to its end. It gets ``claim`` for each request, and each call to a driver
    returns what ``respond`` returns. Raises the errors of the generator and of ``respond``."""
    answer: Answer = None
    try:
        while True:
            effect = steps.send(answer)
            match effect:
                case FetchClaim():
                    answer = claim
                case CallDriver():
                    answer = respond()
                case _:
                    answer = None
    except StopIteration:
        return
