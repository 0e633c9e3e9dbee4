"""``devicemanager simulate``: run the plugin; or print, apply or remove its manifest."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from devicemanager.core.api.deviceplugin import PLUGIN_DIRECTORY
from devicemanager.plugin.common.sockets import directory_problem
from devicemanager.plugin.errors import ConfigurationError, PluginError
from devicemanager.plugin.settings import DIRECTORY_VARIABLE
from devicemanager.plugin.simulated.deployment import deploy, undeploy
from devicemanager.plugin.simulated.objects import DEFAULT_IMAGE, manifest
from devicemanager.plugin.simulated.plugin import SimulatedPlugin
from devicemanager.plugin.simulated.settings import SimulationSettings, as_text

__all__ = ["add_arguments", "run", "simulate_main"]

_ACTIONS = ("run", "manifest", "deploy", "undeploy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``: the action, and a flag for each setting.

    A setting's flag overrides its environment variable.
    """
    parser.usage = f"%(prog)s [{'|'.join(_ACTIONS)}] [options]"
    parser.add_argument(
        "action",
        nargs="?",
        choices=_ACTIONS,
        default="run",
        help="run: run the plugin here (default); manifest: print its Kubernetes manifest; deploy, "
        "undeploy: apply or remove this manifest in the cluster of KUBECONFIG",
    )
    parser.add_argument(
        "--directory",
        metavar=DIRECTORY_VARIABLE,
        help=f"the kubelet's plugin directory (default: {PLUGIN_DIRECTORY})",
    )
    parser.add_argument(
        "--image",
        default=os.environ.get("IMAGE") or DEFAULT_IMAGE,
        help=f"container image in the manifest (default: {DEFAULT_IMAGE})",
    )
    # The help shows the defaults of the class, not those of the environment.
    defaults = SimulationSettings()
    for field in attrs.fields(SimulationSettings):
        text = field.metadata["help"]
        if field.name != "node_name":
            text += f" (default: {as_text(getattr(defaults, field.name)) or 'none'})"
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            metavar=field.name.upper(),
            help=text.replace("%", "%%"),
        )


def run(args: argparse.Namespace) -> int:
    """Run the action of ``devicemanager simulate``, and return the exit status.

    The status is 2 after an error, which is printed on one line to standard error.
    """
    try:
        return _run(args)
    except PluginError as error:
        print(f"devicemanager simulate: error: {error}", file=sys.stderr)
        return 2


def simulate_main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m devicemanager.plugin.simulated``; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="devicemanager simulate",
        description="Run a device plugin with virtual devices, for any kubelet. Each flag can also "
        "be set by the environment variable that is shown after it.",
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _run(args: argparse.Namespace) -> int:
    settings = _settings(args)
    match args.action:
        case "manifest":
            print(manifest(settings, args.image), end="")
        case "deploy":
            print(deploy(settings, args.image))
        case "undeploy":
            print(undeploy(settings))
        case _:
            _configure_logging()
            plugin = SimulatedPlugin(settings, args.directory)
            _check_directory(plugin.manager.directory)
            plugin.manager.run()
    return 0


def _check_directory(directory: Path) -> None:
    problem = directory_problem(directory)
    # A kubelet creates its plugin directory at start, but the parent directory must exist.
    if problem is None and not directory.exists() and not directory.parent.is_dir():
        problem = "does not exist"
    if problem:
        raise ConfigurationError(
            f"plugin directory {directory} {problem}: set the kubelet's plugin directory with "
            f"--directory or {DIRECTORY_VARIABLE}"
        )


def _settings(args: argparse.Namespace) -> SimulationSettings:
    # Treat flags as variables, so that one function parses both and errors name both.
    names = [field.name for field in attrs.fields(SimulationSettings)]
    flags = {name.upper(): value for name in names if (value := getattr(args, name)) is not None}
    return SimulationSettings.from_env(os.environ | flags)


def _configure_logging() -> None:
    # basicConfig does nothing if the calling program has configured logging.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
