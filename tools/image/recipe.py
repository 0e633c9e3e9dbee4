"""Programs that have an image, and what an image has in common with the Dockerfile."""

from __future__ import annotations

import json
import shlex
from typing import Final

import attrs


@attrs.frozen
class Program:
    """Program that an image runs."""

    dockerfile: str
    image: str
    """Name of the image and of the archive."""
    imports: str
    """Modules to import after the build. They need shared libraries."""


PROGRAMS: Final = {
    "join": Program(
        "deploy/Dockerfile", "devicemanager-join", "grpc, kubernetes, msgspec, ssl, uvicorn, yaml"
    ),
    "simulate": Program(
        "tools/simulated-plugin.Dockerfile", "simulated-device-plugin", "grpc, kubernetes, ssl"
    ),
}


@attrs.frozen
class Recipe:
    """Parts of a Dockerfile that the image has, too."""

    directory: str
    """Directory of the installed packages, such as ``/join``."""
    extras: str
    """Extras of the project, such as ``[http]``."""
    user: str
    environment: list[str]
    entry_point: list[str]


def read_recipe(dockerfile: str) -> Recipe:
    """Return the recipe in the text of a Dockerfile."""
    lines = [line.partition(" ") for line in dockerfile.splitlines()]
    steps = {keyword: text for keyword, _, text in lines}
    words = shlex.split(steps["RUN"])
    return Recipe(
        directory=words[words.index("venv") + 1],
        extras=words[-1].removeprefix("."),
        user=steps["USER"],
        environment=[text for keyword, _, text in lines if keyword == "ENV"],
        entry_point=json.loads(steps["ENTRYPOINT"]),
    )
