"""The attacker's process: ``NAME ROOT``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tools.attack.beside import raise_descriptors
from tools.attack.model import Target
from tools.attack.registry import attacks
from tools.attack.requests import leave


def main(arguments: Sequence[str]) -> None:
    """Do what the attack of that name does to the kubelet in that directory."""
    name, root = arguments
    (attack,) = (each for each in attacks() if each.name == name)
    assert attack.hostile is not None, f"{name} has no attacker"
    raise_descriptors()
    attack.hostile(Target(Path(root)))


if __name__ == "__main__":
    main(sys.argv[1:])
    # Calls that nobody answers must not keep the process.
    leave()
