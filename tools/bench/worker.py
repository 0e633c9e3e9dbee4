"""Process that runs benchmark cases: ``python -m tools.bench.worker SCALE MODULE:CASE...``.

It imports only the modules of its cases: to import all takes longer than most cases at the scale
``tiny``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

import attrs

from tools.bench.model import SCALES, Case


def main(arguments: Sequence[str]) -> None:
    """Run the named cases and print their measurements as JSON, by case."""
    scale, *places = arguments
    measured = {}
    for place in places:
        module, _, name = place.partition(":")
        made: list[Case] = importlib.import_module(module).cases(SCALES[scale])
        (case,) = (each for each in made if each.name == name)
        measured[name] = [attrs.asdict(each) for each in case.run()]
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    # Skip the normal shutdown: waiting threads of a case would block it.
    os._exit(0)
