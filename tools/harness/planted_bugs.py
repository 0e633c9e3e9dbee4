"""The planted bugs. Each one removes a guard of this project.

Names are those that ``Attack.plant`` and ``Target.plant`` use. A bug that needs a module which a
process does not use imports it: this happens only with a planted bug.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from tools.harness.planted import on_undo, planted, replace, set_to


@planted("texts are not escaped")
def _escape() -> None:
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text)


@planted("output is not escaped")
def _clean() -> None:
    from devicemanager.cli import output
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text)
    replace(output.clean, lambda text: text)


@planted("texts are not cut")
def _cut() -> None:
    from devicemanager.core import printable

    replace(printable.printable, lambda text, longest=0: text * 8)


@planted("values are quoted as they are")
def _quoting() -> None:
    from devicemanager.objects.manifests import errors

    for function in (errors.shown, errors.plain):
        replace(function, lambda value: str(value))


@planted("any file is read")
def _any_file() -> None:
    from devicemanager.io import safe_read

    def read(path: Any, limit: int) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    replace(safe_read.read_regular, read)


@planted("any checkpoint is read")
def _any_checkpoint() -> None:
    from checkpoint import reading

    def read(path: Any) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    replace(reading.read, read)


@planted("YAML is not limited")
def _yaml() -> None:
    from devicemanager.objects.manifests import documents

    replace(documents._check_shape, lambda events, shape: None)


@planted("references are expanded")
def _references() -> None:
    from yaml.constructor import BaseConstructor

    from devicemanager.objects.manifests import documents

    construct = BaseConstructor.construct_document

    def expanded(self: Any, node: Any) -> Any:
        found = construct(self, node)
        _visit(found)
        return found

    set_to(BaseConstructor, "construct_document", expanded)
    replace(documents._check_shape, lambda events, shape: None)


def _visit(value: Any) -> None:
    """Visit every node of a value as often as it is referenced. This takes time, not memory."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _visit(each)


@planted("a link is followed")
def _links() -> None:
    from devicemanager.kubelet import directories

    set_to(directories, "_FLAGS", directories._FLAGS & ~os.O_NOFOLLOW)


@planted("any directory is used")
def _writable() -> None:
    from devicemanager.kubelet import directories

    without = type("Stat", (), {**vars(stat), "S_IWOTH": 0})
    set_to(directories, "stat", without)


@planted("leftovers stay")
def _leftovers() -> None:
    from podresources import sockets

    replace(sockets.is_private_name, lambda name: False)


@planted("the mode follows the umask")
def _mode() -> None:
    replace(Path.chmod, lambda self, mode, follow_symlinks=True: None)


@planted("descriptors are not checked")
def _descriptors() -> None:
    from devicemanager.kubelet import limits

    replace(limits.check_descriptors, lambda: None)


@planted("memory is not checked")
def _memory() -> None:
    from devicemanager.kubelet import lifecycle

    set_to(lifecycle, "check_address_space", lambda: None)


@planted("silent clients stay connected")
def _silent() -> None:
    from devicemanager.control import http_server

    replace(http_server._Connection._wait_for_request, lambda self: None)


@planted("processes register without limit")
def _registrations() -> None:
    from devicemanager.kubelet.registration import registrar

    replace(registrar.Registrar._check_slots, lambda self, pid, replaces: None)
    _instances_without_limit()


def _instances_without_limit() -> None:
    from devicemanager.kubelet.dra import instances

    replace(instances.Instances._check_limit, lambda self, pid: None)


@planted("drivers respond without limit")
def _responses() -> None:
    from devicemanager.kubelet.dra import connection

    replace(connection._limited, lambda decode, limit, data: decode(data))
    set_to(connection, "_MAX_DEVICES", 1 << 60)


@planted("calls to drivers hold the lock")
def _locked_calls() -> None:
    from devicemanager.kubelet.dra import manager

    replace(
        manager.DraManager._without_lock, lambda self, effect, pod: self._carry_out(effect, pod)
    )


@planted("connections to drivers stay open")
def _open_connections() -> None:
    from devicemanager.kubelet.dra import instances

    replace(instances.Instances._close, lambda self, number: None)


@planted("device names are not limited")
def _device_names() -> None:
    from devicemanager.kubelet.dra import health

    replace(health._is_nameable, lambda entry: True)


@planted("reported devices are not limited")
def _reported_devices() -> None:
    from devicemanager.core.dra import health as core
    from devicemanager.kubelet.dra import health

    set_to(core, "MAX_DEVICES", 1 << 60)
    set_to(health, "_MAX_REPORTED", 1 << 60)


@planted("an invalid health file is an error")
def _health_file() -> None:
    from devicemanager.kubelet.dra import health

    set_to(health, "_INVALID", (ValueError,))


@planted("unread responses are not counted")
def _backlog() -> None:
    from podresources import backlog

    replace(backlog.Backlog.add, lambda self, call, size: True)


@planted("output blocks the kubelet")
def _output() -> None:
    from devicemanager.cli import standard_output

    def put(self: Any, text: str) -> None:
        self._write(text.encode())

    replace(standard_output.OutputQueue.put, put)


@planted("a child stops its parent")
def _fork() -> None:
    from devicemanager.kubelet import directories

    set_to(directories, "os", _AnyProcess())


class _AnyProcess:
    """The module ``os`` with one process ID for all processes."""

    def __getattr__(self, name: str) -> Any:
        return (lambda: 1) if name == "getpid" else getattr(os, name)


@planted("the Host header is not checked")
def _host() -> None:
    from devicemanager.control import access

    replace(access.Access._check_host, lambda self, host: None)


@planted("constraints have no bound")
def _constraints() -> None:
    from devicemanager.claims.cel import limits, v1alpha1

    on_undo(v1alpha1.compile_v1alpha1.cache_clear)
    set_to(v1alpha1, "MAX_COST", 1 << 60)
    set_to(limits, "MAX_WORK", 1 << 60)
