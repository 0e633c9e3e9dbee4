"""Lists of ``devicemanager ctl``: printed as a table or as data, or watched with ``-w``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from devicemanager.cli.ctl_client import data, pods_named, show
from devicemanager.cli.output import clean, ids_text, nodes_text, print_table
from devicemanager.control.errors import ServerGone

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.core.dra.report import ResourceClaimInfo
    from devicemanager.kubelet.pods.pod_info import PodInfo

Column = tuple[str, Callable[[Any], object]]
"""The heading of a column, and a function that returns an item's value in this column. None and an
empty text are shown as ``-``."""


@attrs.frozen
class Listing:
    """Columns in which a list is printed, and a function that returns the name of an item."""

    name: Callable[[Any], str]
    """Function that returns the name of an item. ``-o name`` prints it, and ``--watch`` uses it to
    find items that are new, changed or gone."""
    columns: Sequence[Column]
    wide: Sequence[Column] = ()
    """Additional columns for ``-o wide``."""

    def headings(self, is_wide: bool) -> list[str]:
        """Return the headings of the columns, including the columns of ``-o wide`` if
        ``is_wide``."""
        return [heading for heading, _ in self._columns(is_wide)]

    def cells(self, item: Any, is_wide: bool) -> list[str]:
        """Return the cells of an item's row, including the columns of ``-o wide`` if
        ``is_wide``."""
        return [_cell(value(item)) for _, value in self._columns(is_wide)]

    def _columns(self, is_wide: bool) -> list[Column]:
        return [*self.columns, *(self.wide if is_wide else ())]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)


def _running(pod: PodInfo) -> str:
    """Return how many app containers and sidecars are running, and how many there are, as in
    ``1/2``. This is like the column READY of kubectl."""
    # Sidecars run while the app containers run; other init containers do not.
    sidecars = [each for each in pod.init_containers if each.restartable]
    counted = [*pod.containers, *sidecars]
    return f"{sum(each.running for each in counted)}/{len(counted)}"


def devices_text(pod: PodInfo) -> str:
    """Return the device IDs of a pod, sorted, as the text of one table cell."""
    # A set, because two containers of a pod can have the same device, such as an init container's.
    every = {
        (resource, id_)
        for by_resource in pod.devices.values()
        for resource, ids in by_resource.items()
        for id_ in ids
    }
    return ids_text(sorted(id_ for _, id_ in every))


def _cdi_text(pod: PodInfo) -> str:
    """Return the CDI devices that the containers of a pod got for their ResourceClaims, sorted."""
    return ids_text(sorted({name for each in pod.all_containers for name in each.cdi_devices}))


# The columns are those of kubectl where it has them, because users know them.
_PODS: Final = Listing(
    lambda pod: pod.title,
    [
        ("NAMESPACE", lambda pod: pod.namespace),
        ("NAME", lambda pod: pod.name),
        ("RUNNING", _running),
        ("STATUS", lambda pod: pod.phase),
        ("REASON", lambda pod: pod.reason),
    ],
    [("DEVICES", devices_text), ("CDI DEVICES", _cdi_text), ("UID", lambda pod: pod.uid)],
)
_RESOURCES: Final = Listing(
    lambda resource: resource.name,
    [
        ("RESOURCE", lambda resource: resource.name),
        ("CAPACITY", lambda resource: resource.capacity),
        ("ALLOCATABLE", lambda resource: resource.allocatable),
    ],
)
_PLUGINS: Final = Listing(
    lambda plugin: plugin.resource,
    [
        ("RESOURCE", lambda plugin: plugin.resource),
        ("ENDPOINT", lambda plugin: plugin.endpoint),
        ("CONNECTED", lambda plugin: plugin.connected),
        ("CAPACITY", lambda plugin: plugin.capacity),
        ("ALLOCATABLE", lambda plugin: plugin.allocatable),
    ],
    [
        ("PRESTART", lambda plugin: plugin.pre_start_required),
        ("PREFERRED", lambda plugin: plugin.get_preferred_allocation_available),
    ],
)
# A driver can have several instances during a rolling update, so the name also has the socket.
_DRIVERS: Final = Listing(
    lambda driver: f"{driver.driver}/{Path(driver.endpoint).name}",
    [
        ("DRIVER", lambda driver: driver.driver),
        ("INSTANCE", lambda driver: Path(driver.endpoint).name),
        ("SERVICE", lambda driver: driver.service),
        ("HEALTH", lambda driver: driver.health_service),
        ("CONNECTED", lambda driver: driver.connected),
    ],
    [("ENDPOINT", lambda driver: driver.endpoint)],
)
_SLICES: Final = Listing(
    lambda found: found.name,
    [
        ("NAME", lambda found: found.name),
        ("DRIVER", lambda found: found.driver),
        ("POOL", lambda found: found.pool),
        ("GENERATION", lambda found: found.generation),
        ("NODES", lambda found: found.nodes),
        ("DEVICES", lambda found: len(found.devices)),
    ],
    [("DEVICE NAMES", lambda found: ids_text(found.devices))],
)
FAULTS: Final = Listing(
    lambda fault: f"fault/{fault.id}",
    [
        ("ID", lambda fault: fault.id),
        ("FAULT", lambda fault: fault.spec),
        ("SEEN", lambda fault: fault.seen),
        ("FIRED", lambda fault: fault.fired),
        ("SPENT", lambda fault: fault.spent),
    ],
    [("HOLDING", lambda fault: fault.holding)],
)


def pods(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List all pods, or the pods that the arguments name."""

    def fetch() -> Any:
        answer = client.ask("listPods")
        if not args.pods:
            return answer
        # Selected here, because the operation has no filter.
        return msgspec.structs.replace(answer, items=pods_named(client, args.pods))

    return _show(client, args, _PODS, fetch)


def devices(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List devices, with the names of the pods to which they are allocated."""
    # The API returns the UIDs of pods, but users know pods by name.
    names: dict[str, str] = {}

    def holder(uid: str | None) -> str | None:
        return None if uid is None else _title(client, names, uid)

    listing = Listing(
        lambda device: f"{device.resource}/{device.id}",
        [
            ("RESOURCE", lambda device: device.resource),
            ("DEVICE", lambda device: device.id),
            ("HEALTH", lambda device: device.health.value),
            ("NUMA", lambda device: nodes_text(device.numa_nodes or ())),
            ("POD", lambda device: holder(device.pod)),
            ("CONTAINER", lambda device: device.container),
        ],
        [("UID", lambda device: device.pod)],
    )
    query = {"resource": args.resource}
    return _show(client, args, listing, lambda: client.ask("listDevices", query=query))


def _title(client: MockKubeletClient, names: dict[str, str], uid: str) -> str:
    """Return a pod's ``namespace/name``, or its UID if the name is unknown.

    ``names``: cache of the names, by UID.
    """
    # One request returns the names of all pods; another is needed for a newer pod.
    if uid not in names:
        names.update((pod.uid, pod.title) for pod in client.pods().values())
    return names.get(uid, uid)


def claims(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List ResourceClaims, with the names of the pods that use them."""
    names: dict[str, str] = {}

    def users(claim: ResourceClaimInfo) -> str:
        return ",".join(_title(client, names, uid) for uid in claim.pods)

    listing = Listing(
        lambda claim: claim.title,
        [
            ("NAMESPACE", lambda claim: claim.namespace),
            ("NAME", lambda claim: claim.name),
            ("STATE", lambda claim: claim.state.value),
            ("PODS", users),
            ("DEVICES", lambda claim: ids_text([f"{d.pool}/{d.device}" for d in claim.devices])),
        ],
        [("UID", lambda claim: claim.uid), ("TEXT", lambda claim: claim.details)],
    )
    return _show(client, args, listing, lambda: client.ask("listResourceClaims"))


def drivers(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List the registered instances of DRA drivers."""
    return _show(client, args, _DRIVERS, lambda: client.ask("listDrivers"))


def slices(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List the ResourceSlices that the mock kubelet stores."""
    return _show(client, args, _SLICES, lambda: client.ask("listResourceSlices"))


def resources(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List resources with their numbers of devices."""
    return _show(client, args, _RESOURCES, lambda: client.ask("listResources"))


def plugins(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """List plugins with their resources and endpoints."""
    return _show(client, args, _PLUGINS, lambda: client.ask("listPlugins"))


def _show(
    client: MockKubeletClient,
    args: argparse.Namespace,
    listing: Listing,
    fetch: Callable[[], Any],
) -> int:
    # -w prints item by item, because a table can be printed only when it is complete.
    if args.watch:
        return _watch(client, args.output, listing, fetch)
    print_items(listing, fetch(), args.output)
    return 0


def print_items(listing: Listing, answer: Any, form: str) -> None:
    """Print the items of a response as table, wide table, names, JSON or YAML."""
    if form in ("json", "yaml"):
        show(answer, form)
    elif form == "name":
        for item in answer.items:
            print(clean(listing.name(item)))
    else:
        is_wide = form == "wide"
        rows = [listing.cells(item, is_wide) for item in answer.items]
        print_table(listing.headings(is_wide), rows)


def _watch(client: MockKubeletClient, form: str, listing: Listing, fetch: Callable[[], Any]) -> int:
    """Print all items, and after every event the items that are new or changed, until the server
    stops."""
    # The event number is read before the first list, so that no event in between is missed.
    seen: dict[str, Any] = {}
    latest = client.node().latest_event
    printer = _Printer(form, listing)
    # An empty ``seen`` makes all items of the first list new, so that they are printed.
    printer.changes(seen, fetch().items)
    for _ in client.events.follow(latest):
        try:
            items = fetch().items
        except ServerGone:
            break  # the server has stopped since the event
        printer.changes(seen, items)
    return 0


class _Printer:
    """Printer of a table, row by row. The first item sets the width of the columns."""

    def __init__(self, form: str, listing: Listing) -> None:
        self._form = form
        self._listing = listing
        self._widths: Sequence[int] = ()

    def changes(self, seen: dict[str, Any], items: Sequence[Any]) -> None:
        """Print the items that differ from ``seen``, and update ``seen``."""
        # An event does not name all changed items, so whole lists are compared.
        now: Mapping[str, Any] = {self._listing.name(item): item for item in items}
        changed = [item for name, item in now.items() if seen.get(name) != item]
        gone = [name for name in seen if name not in now]
        seen.clear()
        seen.update(now)
        for item in changed:
            self._print(item)
        for name in gone:
            self._print_gone(name)

    def _print(self, item: Any) -> None:
        if self._form == "name":
            print(clean(self._listing.name(item)), flush=True)
        elif self._form in ("json", "yaml"):
            print(json.dumps(data(item)), flush=True)  # also for YAML, because JSON is valid YAML
        else:
            is_wide = self._form == "wide"
            headings = self._listing.headings(is_wide)
            cells = [clean(cell) for cell in self._listing.cells(item, is_wide)]
            # Printed rows cannot change, so a longer cell in a later row is not aligned.
            if not self._widths:
                pairs = zip(headings, cells, strict=True)
                self._widths = [max(map(len, pair)) + 2 for pair in pairs]
                self._line(headings)
            self._line(cells)

    def _print_gone(self, name: str) -> None:
        if self._form in ("json", "yaml"):
            print(json.dumps({"deleted": name}), flush=True)
        else:
            print(f"{clean(name)} is gone", flush=True)

    def _line(self, cells: Sequence[str]) -> None:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        print("".join(padded).rstrip(), flush=True)
