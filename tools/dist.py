"""``make dist``: build wheel and sdist into dist/, and check that they can be installed.

Each is installed into a new environment outside the checkout. A program in this environment starts
a kubelet, registers a plugin and admits a pod with a device. ``--version`` is the expected version.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints" / "dev.txt"
JOURNEY = """
from importlib.resources import files

from devicemanager import MockKubelet
from devicemanager.testing import SimulatedPluginFactory, pod_manifest

with MockKubelet() as kubelet, SimulatedPluginFactory(kubelet) as simulate:
    simulate("vendor.com/gpu", 2)
    kubelet.admit(pod_manifest("a", {"vendor.com/gpu": 1})).raise_for_rejection()
assert files("devicemanager.observe.web").joinpath("page/static/index.html").is_file()
"""


def build(directory: Path) -> list[Path]:
    """Build wheel and sdist into ``directory``, which is emptied first. Return their paths."""
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True)
    return sorted(directory.iterdir())


def check(path: Path, version: str | None) -> None:
    """Install the wheel or sdist ``path`` and use it. Raises SystemExit if it does not work or has
    another version."""
    with tempfile.TemporaryDirectory(prefix="dm-dist-") as scratch:
        environment = Path(scratch) / "venv"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet"]
        _run([*pip, "--constraint", CONSTRAINTS, path], scratch)
        _run([python, "-W", "error", "-c", JOURNEY], scratch)
        found = _run([environment / "bin" / "devicemanager", "--version"], scratch).split()[-1]
    if version is not None and found != version:
        raise SystemExit(f"make dist: {path.name} has version {found}, expected {version}")
    print(f"{path.name}: version {found}, installs and works")


def _run(command: list[str | Path], directory: str) -> str:
    # Remove PYTHONPATH: it could make the checkout importable and hide files that are missing in
    # the package.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"make dist: {' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__)
    parser.add_argument("--version", help="expected version of wheel and sdist")
    options = parser.parse_args()
    for path in build(ROOT / "dist"):
        check(path, options.version or None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
