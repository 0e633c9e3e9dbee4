"""Processes of ``devicemanager``, which tests start and stop."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("devicemanager")


def start(*words, **options):
    """Start ``devicemanager`` with arguments and the options of ``Popen``."""
    command = list(map(str, (COMMAND, *words)))
    return subprocess.Popen(command, start_new_session=True, text=True, **options)


def stop(process, number=signal.SIGTERM):
    """Send a signal to a process and its children, and wait until the process has exited."""
    if process.poll() is None:
        os.killpg(process.pid, number)
        process.wait()


def free_port():
    """Return a port that no process uses."""
    with socket.socket() as found:
        found.bind(("0.0.0.0", 0))
        return found.getsockname()[1]
