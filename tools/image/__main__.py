"""Command line of ``make image``, and the check of the image."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from devicemanager import sandbox
from tools.harness.command import Run
from tools.image.archive import unpack, write
from tools.image.files import fill, last_line
from tools.image.recipe import PROGRAMS, Program, read_recipe

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMAGES: Final = _ROOT / ".cache" / "image"


def check(archive: Path, program: Program) -> str:
    """Run the program of an image in a container, without a container runtime.

    Return what was done. Raises SystemExit if the program does not work.
    """
    probe = _contain(sandbox.bundle({}, [sys.executable, "-c", ""]))
    if probe.returncode != 0:
        return f"not run, because this machine permits no container: {last_line(probe)}"
    with tempfile.TemporaryDirectory() as scratch:
        config = unpack(archive, Path(scratch))["config"]
        python = f"{Path(config['Entrypoint'][0]).parent}/python"
        for command in (
            [*config["Entrypoint"], "--help"],
            [python, "-c", f"import {program.imports}"],
        ):
            bundle = sandbox.bundle({}, command, Path(scratch))
            bundle.config["process"]["env"] = config["Env"]
            done = _contain(bundle)
            if done.returncode != 0:
                line = last_line(done)
                raise SystemExit(f"image: {shlex.join(command)} failed in the image: {line}")
    return f"it starts and can import {program.imports}"


def _contain(bundle: sandbox.Bundle) -> subprocess.CompletedProcess[str]:
    return sandbox.run(bundle, "namespaces", capture_output=True, text=True)


def main() -> int:
    """Build an image and check it."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.image",
        description="Build an image of a program, and run the program in it.",
    )
    parser.add_argument(
        "--program", choices=PROGRAMS, default="join", help="program to run (default: %(default)s)"
    )
    parser.add_argument(
        "--tag", metavar="NAME:VERSION", help="name of the image (default: version latest)"
    )
    options = parser.parse_args()
    run = Run("image")
    program = PROGRAMS[options.program]
    tag = options.tag or f"{program.image}:latest"
    if not re.fullmatch(r"[a-z0-9._/:-]+:[A-Za-z0-9_.-]+", tag):
        parser.error(f"invalid --tag {tag!r}: expected NAME:VERSION")
    recipe = read_recipe((_ROOT / program.dockerfile).read_text())
    archive = _IMAGES / f"{program.image}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        fill(Path(root), recipe)
        write(archive, Path(root), recipe, tag)
    result = check(archive, program)
    size = archive.stat().st_size / 1e6
    return run.finish(f"{archive.relative_to(_ROOT)} with {tag}, {size:.0f} MB", result)


if __name__ == "__main__":
    sys.exit(main())
