"""A plan for the supervisor as text, so that it can be handed to a process."""

from __future__ import annotations

import json
from pathlib import Path

from devicemanager.plugin.processes.namespace import Bind
from devicemanager.plugin.processes.supervisor import Supervision

__all__ = ["decode", "encode"]


def encode(plan: Supervision) -> str:
    """The plan as one argument of a command line."""
    return json.dumps(
        {
            "command": list(plan.command),
            "binds": [[str(bind.source), str(bind.target), bind.keep] for bind in plan.binds],
            "lifeline": plan.lifeline,
            "report": plan.report,
        }
    )


def decode(text: str) -> Supervision:
    """The plan that ``encode`` wrote."""
    data = json.loads(text)
    binds = tuple(
        Bind(Path(source), Path(target), tuple(keep)) for source, target, keep in data["binds"]
    )
    return Supervision(data["command"], binds, data["lifeline"], data["report"])
