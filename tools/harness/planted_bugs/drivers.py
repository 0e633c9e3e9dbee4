"""Planted bugs in the handling of DRA drivers: registrations, responses, health reports, and
files."""

from __future__ import annotations

from typing import Any

from tools.harness.planted import pause, planted, replace, set_to


@planted("drivers register without limit")
def _registrations() -> None:
    from devicemanager.kubelet.dra import instances

    replace(instances.Instances._check_limit, lambda self, pid: None)


@planted("drivers respond without limit")
def _responses() -> None:
    from devicemanager.kubelet.dra import connection

    replace(connection._limited, lambda decode, limit, data: decode(data))
    set_to(connection, "_MAX_DEVICES", 1 << 60)


@planted("calls to drivers hold the lock")
def _locked_calls() -> None:
    from devicemanager.core.dra.effects import CallDriver
    from devicemanager.kubelet.dra.manager import DraManager

    without = DraManager._without_lock

    def carried_out(self: Any, effect: Any, pod: Any) -> Any:
        is_call = isinstance(effect, CallDriver)
        return self._carry_out(effect, pod) if is_call else without(self, effect, pod)

    set_to(DraManager, "_without_lock", carried_out)


@planted("connections are closed on the event loop")
def _slow_close() -> None:
    from devicemanager.kubelet.dra.instances import Instances

    deregister = Instances.deregister

    # The driver has stopped, and does not respond.
    def closed(self: Any, instance: Any) -> None:
        pause(30)
        deregister(self, instance)

    set_to(Instances, "deregister", closed)


@planted("reports are stored with the lock held")
def _locked_reports() -> None:
    from devicemanager.kubelet.dra.manager import DraManager

    report = DraManager.report

    # The file of the health is on a slow disk.
    def reported(self: Any, *arguments: Any) -> None:
        with self._lock:
            pause(2)
        report(self, *arguments)

    set_to(DraManager, "report", reported)


@planted("undecodable reports are errors")
def _undecodable() -> None:
    from devicemanager.kubelet.dra import health

    set_to(health, "DecodeError", ZeroDivisionError)


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

    set_to(health, "_INVALID", (ZeroDivisionError,))
