"""Run a command in a container without root."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

from devicemanager.core.errors import RequestError
from devicemanager.sandbox import terminal
from devicemanager.sandbox.bundling import Bundle

__all__ = ["SandboxError", "backends", "run"]

_RUNTIMES = ("crun", "runc")
NAMESPACES = "namespaces"
"""Name of the backend that runs a command in new namespaces, without a container runtime."""


class SandboxError(RequestError):
    """Error for a command that cannot be run. The text is one line."""


def backends() -> list[str]:
    """Return the ways to run a container on this machine, the default first.

    These are ``crun`` and ``runc``, if installed, then ``namespaces``, which needs no runtime.
    """
    return [*filter(shutil.which, _RUNTIMES), NAMESPACES]


def run(
    bundle: Bundle, backend: str | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run the command of a bundle, and return the completed process.

    ``returncode`` is 128 + N if signal N killed the command, and 127 if the command cannot be
    started. ``options`` are keyword arguments of ``subprocess.run``, such as ``capture_output``. If
    this process is killed, the command is killed, too. Raises SandboxError for an unknown backend.
    """
    known = backends()
    backend = backend or known[0]
    if backend not in known:
        raise SandboxError(f"backend {backend} is not available: use one of {', '.join(known)}")
    plan = json.dumps({"backend": backend, "config": bundle.config})
    # Another process enters the namespaces, because a process with several threads cannot enter a
    # user namespace.
    words = [sys.executable, "-m", "devicemanager.sandbox.inside", plan]
    with terminal.kept():
        return subprocess.run(words, check=False, **options)
