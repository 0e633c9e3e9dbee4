"""Attack with output that is not read, with escape sequences, and with a fork of the process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import grpc

from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack.beside import good_registration
from tools.attack.model import Limits, Outcome, Target, attack
from tools.attack.plugins import HOSTILE_SOCKET, channel, device, hostile_plugin, register
from tools.attack.running import Running, running
from tools.harness.process import short_directory
from tools.harness.usage import Watch

_TIMEOUT = 30.0
_EVENTS = 5000
_ESCAPE = "\x1b"

# A forked child inherits the exit handlers of its parent. They must not clean up in the child.
_FORK = """
import os, sys
from tools.harness.planted import apply
apply()
from devicemanager import MockKubelet
with MockKubelet() as kubelet:
    child = os.fork()
    if not child:
        sys.exit(0)
    os.waitpid(child, 0)
    sys.exit(0 if kubelet.plugin_socket.exists() else 3)
"""


@attack(
    "output-unread",
    f"the output of run is not read, {_EVENTS} registrations are rejected",
    Limits(memory=200.0, threads=200, descriptors=200),
)
def _unread() -> Outcome:
    with short_directory() as root, running(root, reads=False) as command:
        target = Target(root)
        # Do not wait for output: nothing reads it, so the next write to a full pipe blocks.
        _served(target)
        with Watch(command.process.pid) as watch:
            rejected = _rejected(target)
            seconds, problems = good_registration(root, _TIMEOUT)
            problems += command.end()
        if rejected < _EVENTS:
            problems.append(f"no response after {rejected} registrations")
        return Outcome.measured(
            watch.peak, registration=seconds, stop=command.stop, problems=tuple(problems)
        )


def _served(target: Target) -> None:
    limit = time.monotonic() + _TIMEOUT
    while not target.registration.exists() and time.monotonic() < limit:
        time.sleep(0.05)


def _rejected(target: Target) -> int:
    """Make invalid Register calls until one has no response. Return the number of responses."""
    request = dp.RegisterRequest(version="none", resource_name="a.b/c")
    with channel(target) as connection:
        stub = dp_grpc.RegistrationStub(connection)
        for number in range(_EVENTS):
            try:
                stub.Register(request, timeout=5)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call)
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return number
    return _EVENTS


@attack("escape-sequences", "device IDs, names and errors that clear a terminal")
def _escape() -> Outcome:
    # The lines for people, and the messages for programs that print them.
    problems = [*_escapes(), *_escapes("-o", "json")]
    return Outcome(problems=tuple(problems))


def _escapes(*options: str) -> Iterator[str]:
    name = f"d{_ESCAPE}[2J{_ESCAPE}]0;owned\x07\x9b"
    with short_directory() as root, running(root, *options) as command:
        target = Target(root)
        command.until(partial(_has_printed, command, "ready"), _TIMEOUT)
        lists = [device(name.encode()) * 2]
        with hostile_plugin(target, lambda: iter(lists), error=name):
            with contextlib.suppress(grpc.RpcError):
                register(target, HOSTILE_SOCKET, f"{name}/x")
            with contextlib.suppress(grpc.RpcError):
                register(target, f"{name}/x", "a.b/c")
            command.until(partial(_has_printed, command, "stream-ended"), _TIMEOUT)
            # Wait, because the last lines may still be in the pipe.
            time.sleep(0.5)
            yield from command.end()
        texts = command.lines + command.errors
        texts += [str(each["message"]) for each in command.records("stream-ended")]
        texts += [str(each["message"]) for each in command.records("registration-rejected")]
        bad = [text for text in texts if _ESCAPE in text]
        if bad:
            yield f"an escape sequence is printed: {bad[0]!r:.200}"
        if options and len(texts) == len(command.lines + command.errors):
            yield "no message was checked"


def _has_printed(command: Running, word: str) -> bool:
    return any(word in line for line in list(command.lines))


@attack("fork-exit", "a forked child of a test calls sys.exit")
def _fork() -> Outcome:
    command = [sys.executable, "-c", _FORK]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as parent:
        try:
            _, errors = parent.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            return Outcome(problems=("the child did not exit",))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
    if parent.returncode == 3:
        return Outcome(problems=("the child deleted the directory of its parent",))
    text = errors.decode()[-200:]
    return Outcome(
        problems=(f"exited with {parent.returncode}: {text}",) if parent.returncode else ()
    )
