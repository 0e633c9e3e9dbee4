"""Steps that checks of several families share."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, PluginClient
from devicemanager.conformance.outcomes import Failed, Skipped

__all__ = [
    "UNKNOWN_ID",
    "allocate_many",
    "check_same_devices",
    "devices_by_resource",
    "pre_start_client",
    "preference_client",
    "stop",
    "stop_by",
]

UNKNOWN_ID = "no-such-device"

Devices: TypeAlias = Mapping[str, Mapping[str, str]]
"""Health by resource and device ID."""


@contextlib.contextmanager
def preference_client(run: CheckRun, least: int = 1) -> Iterator[tuple[PluginClient, list[str]]]:
    """Connect to a plugin that offers GetPreferredAllocation. Return the connection and the
    healthy devices; raises Skipped."""
    ids = run.healthy_ids(least=least)
    with run.client() as client:
        if not client.options().get_preferred_allocation_available:
            raise Skipped("the options do not offer GetPreferredAllocation")
        yield client, ids


@contextlib.contextmanager
def pre_start_client(run: CheckRun) -> Iterator[tuple[PluginClient, list[str]]]:
    """Connect to a plugin that requires PreStartContainer, and allocate a device, as the kubelet
    does before. Return the connection and the device; raises Skipped."""
    ids = run.healthy_ids()[:1]
    with run.client() as client:
        if not client.options().pre_start_required:
            raise Skipped("the options do not require PreStartContainer")
        # The kubelet only prepares allocated devices, so a plugin may reject others.
        client.allocate(ids)
        yield client, ids


def allocate_many(run: CheckRun, client: PluginClient) -> None:
    """Allocate one device after another, ``Limits.allocations`` times. Raises Failed."""
    ids = run.healthy_ids()
    for number in range(run.limits.allocations):
        try:
            client.allocate([ids[number % len(ids)]], seconds=run.limits.allocate_seconds)
        except CallFailed as error:
            raise Failed(f"allocation {number + 1}: {error}") from None


def devices_by_resource(run: CheckRun) -> Devices:
    """Return the devices of all resources now, to compare them later."""
    return {
        resource: {device.ID: device.health for device in run.devices(resource)}
        for resource in run.resources
    }


def check_same_devices(run: CheckRun, before: Devices, *, health: bool = True) -> None:
    """Raise Failed if device IDs or, unless ``health`` is false, their health have changed."""
    # IDs first: with other IDs, health cannot be compared.
    for resource, now in devices_by_resource(run).items():
        old = before[resource]
        lost, new = sorted(old.keys() - now.keys()), sorted(now.keys() - old.keys())
        if lost or new:
            raise Failed(f"{resource}: devices lost {lost[:5]}, new {new[:5]}")
        changed = sorted(id_ for id_ in now if now[id_] != old[id_])
        if health and changed:
            id_ = changed[0]
            raise Failed(f"{resource}: {id_} was {old[id_]} and is now {now[id_]}")


def stop_by(run: CheckRun, number: signal.Signals) -> float:
    """Send a signal to the plugin and wait for its exit. Return the seconds; raises Failed."""
    process = run.process
    run.step(number.name)
    process.stay_down()  # else a supervisor starts it again before the exit is noticed
    process.send_signal(number)
    took = run.until(lambda: not process.is_running, run.limits.stop_seconds)
    if took is None:
        raise Failed(f"it still runs {run.limits.stop_seconds:g} s after {number.name}")
    return took


def stop(run: CheckRun) -> None:
    """Stop the plugin as a precondition. Raises Skipped if it does not exit."""
    try:
        stop_by(run, signal.SIGTERM)
    except Failed as failed:
        raise Skipped(f"{failed}: see L01") from None
