"""Steps that checks of several families use."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.events.calls import Mark
from protos import deviceplugin_v1beta1 as dp

__all__ = [
    "NO_HOT_PLUG",
    "REMOVED_STAY",
    "UNKNOWN_ID",
    "allocate_many",
    "assume_allocates",
    "assume_list",
    "assume_new_list",
    "check_same_devices",
    "check_sent",
    "devices_by_resource",
    "pre_start_client",
    "preference_client",
    "stop",
    "stop_by",
]

UNKNOWN_ID = "no-such-device"

Devices: TypeAlias = Mapping[str, Mapping[str, str]]
"""Mapping from resource to a mapping from device ID to the health of the device."""


@contextlib.contextmanager
def preference_client(run: CheckRun, least: int = 1) -> Iterator[tuple[PluginClient, list[str]]]:
    """Connect to a plugin whose options announce GetPreferredAllocation. Yield the connection and
    the IDs of healthy devices.

    Raises Skipped if the options do not announce the call, or if there are fewer than ``least``
    healthy devices.
    """
    ids = run.healthy_ids(least=least)
    with run.client() as client:
        if not client.options().get_preferred_allocation_available:
            raise Skipped("the plugin's options do not announce GetPreferredAllocation")
        yield client, ids


@contextlib.contextmanager
def pre_start_client(run: CheckRun) -> Iterator[tuple[PluginClient, list[str]]]:
    """Connect to a plugin whose options require PreStartContainer. Yield the connection and a list
    with the ID of one device.

    First, allocate a device, because the kubelet calls PreStartContainer only for allocated
    devices. Raises Skipped if this fails, or if the options do not require PreStartContainer.
    """
    ids = run.healthy_ids()[:1]
    with run.client() as client:
        if not client.options().pre_start_required:
            raise Skipped("the plugin's options do not require PreStartContainer")
        # The kubelet calls PreStartContainer only for allocated devices, so a plugin may reject
        # other devices.
        assume_allocates(run, client)
        yield client, ids


def assume_allocates(run: CheckRun, client: PluginClient, resource: str | None = None) -> None:
    """Allocate a device as a precondition of a check. Raises Skipped if the call fails."""
    id_ = run.healthy_ids(resource)[0]
    try:
        client.allocate([id_], seconds=run.limits.allocate_seconds)
    except CallFailed as error:
        # A05 verifies Allocate, so it reports this failure once for all checks.
        raise Skipped(f"Allocate of {id_}: {error}", cause="A05") from None


def assume_list(run: CheckRun, stream: ListStream) -> None:
    """Read the first device list of ``stream``, which the check has opened in addition to the
    kubelet's stream. Raises Skipped if no list comes."""
    with run.assuming("W11"):
        run.first_list(stream)


def assume_new_list(run: CheckRun, resource: str | None = None) -> dp.ListAndWatchResponse:
    """Return the first device list of a new stream. Raises Skipped if no list comes."""
    with run.assuming("W11"):
        return run.new_list(resource)


NO_HOT_PLUG = "a device that is added is not used until the plugin restarts"
"""Text for the argument ``symptom`` of ``Failed``: the effect on a node of a plugin that does not
report devices that are added while it runs."""
REMOVED_STAY = "removed devices stay on the node"
"""Text for the argument ``symptom`` of ``Failed``: the effect on a node of a plugin that still
lists removed devices as healthy."""


def check_sent(run: CheckRun, since: Mark, after: str, symptom: str) -> None:
    """Raise Failed if the plugin has sent no device list since the mark ``since``.

    A check takes the mark, changes devices, and then calls this function. ``after`` names the
    change in the error, such as "add-device". ``symptom`` is the effect on a node of a plugin that
    does not report this kind of change.

    A plugin that reports no changes at all also fails check W07. The error refers to W07: if W07
    fails in the same run, the report shows this check as skipped.
    """
    if silence := run.silence_since(since, after):
        raise Failed(silence, cause="W07", symptom=symptom)


def allocate_many(run: CheckRun, client: PluginClient) -> int:
    """Call Allocate ``Limits.allocations`` times, each time for one device. Return the number of
    calls.

    After ``Limits.series_seconds``, the function makes no further calls, so the number can be
    smaller than the limit. Raises Failed if a call fails.
    """
    ids = run.healthy_ids()
    for number in run.series(run.limits.allocations):
        try:
            client.allocate([ids[number % len(ids)]], seconds=run.limits.allocate_seconds)
        except CallFailed as error:
            raise Failed(f"Allocate call {number + 1}: {error}") from None
    return number + 1


def devices_by_resource(run: CheckRun) -> Devices:
    """Return the current devices of all resources. A check passes them to ``check_same_devices``
    later."""
    return {
        resource: {device.ID: device.health for device in run.devices(resource)}
        for resource in run.resources
    }


def check_same_devices(run: CheckRun, before: Devices, *, health: bool = True) -> None:
    """Raise Failed if the current device IDs differ from those in ``before``. If ``health`` is
    true, also compare the health of devices.

    The first list after a start may be empty or incomplete. Therefore the function first waits up
    to ``refresh_seconds`` for the devices in ``before``.
    """

    def is_same() -> bool:
        now = devices_by_resource(run)
        if health:
            return now == before
        return all(now[resource].keys() == before[resource].keys() for resource in now)

    # A timeout needs no error here: the comparison below says which devices differ.
    run.until(is_same, run.limits.refresh_seconds)
    # Compare IDs first: the health of different devices cannot be compared.
    for resource, now in devices_by_resource(run).items():
        old = before[resource]
        lost, new = sorted(old.keys() - now.keys()), sorted(now.keys() - old.keys())
        if lost or new:
            raise Failed(f"{resource}: the devices have changed: lost {lost[:5]}, new {new[:5]}")
        changed = sorted(id_ for id_ in now if now[id_] != old[id_])
        if health and changed:
            id_ = changed[0]
            raise Failed(
                f"{resource}: the health of {id_} has changed from {old[id_]} to {now[id_]}"
            )


def stop_by(run: CheckRun, number: signal.Signals) -> float:
    """Send the signal ``number`` to the plugin and wait for its exit. Return the seconds until the
    exit.

    Raises Failed if the plugin does not exit within ``stop_seconds``.
    """
    process = run.process
    # Many plugins set up their signal handlers after the registration. Before that, SIGTERM ends
    # them without clean-up.
    run.wait_set_up()
    run.step(number.name)
    process.stay_down()  # otherwise a supervisor could start it again before the exit is noticed
    process.send_signal(number)
    took = run.until(lambda: not process.is_running, run.limits.stop_seconds)
    if took is None:
        raise Failed(f"the plugin still runs {run.limits.stop_seconds:g} s after {number.name}")
    return took


def stop(run: CheckRun) -> None:
    """Stop the plugin as a precondition of a check. Raises Skipped if it does not exit."""
    with run.assuming("L01"):
        stop_by(run, signal.SIGTERM)
