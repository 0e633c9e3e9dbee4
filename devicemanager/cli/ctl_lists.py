"""Lists of ``devicemanager ctl``: as tables, as data, and as they change."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.cli.ctl_client import data, pods_named, show
from devicemanager.cli.output import clean, ids_text, nodes_text, print_table

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient

Cells = tuple[str, ...]


@attrs.frozen
class Listing:
    """What one list shows."""

    name: Callable[[Any], str]
    """What identifies an item, for ``-o name`` and ``-w``."""
    columns: Cells
    row: Callable[[Any], Cells]
    wide_columns: Cells = ()
    wide_row: Callable[[Any], Cells] = lambda item: ()


def pods(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl pods``."""

    listing = Listing(
        lambda pod: f"{pod.namespace}/{pod.name}",
        ("NAMESPACE", "NAME", "RUNNING", "STATUS", "REASON"),
        lambda pod: (
            pod.namespace,
            pod.name,
            _running(pod),
            pod.phase.value,
            pod.reason or "-",
        ),
        ("DEVICES", "UID"),
        lambda pod: (held_text(client.ask("getPodDevices", pod.uid).containers), pod.uid),
    )

    def fetch() -> Any:
        answer = client.ask("listPods")
        if not args.pods:
            return answer
        import msgspec

        return msgspec.structs.replace(answer, items=pods_named(client, args.pods))

    return _show(client, args, listing, fetch)


def _running(pod: Any) -> str:
    """How many of how many, with sidecars, as kubectl counts those that are ready."""
    sidecars = [each for each in pod.init_containers if each.restartable]
    counted = [*pod.containers, *sidecars]
    return f"{sum(each.running for each in counted)}/{len(counted)}"


def devices(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl devices``."""
    names: dict[str, str] = {}

    def holder(uid: str | None) -> str:
        if uid is None:
            return "-"
        if uid not in names:
            names.update(
                (pod.uid, f"{pod.namespace}/{pod.name}") for pod in client.ask("listPods").items
            )
        return names.get(uid, uid)

    listing = Listing(
        lambda device: f"{device.resource}/{device.id}",
        ("RESOURCE", "DEVICE", "HEALTH", "NUMA", "POD", "CONTAINER"),
        lambda device: (
            device.resource,
            device.id,
            device.health.value,
            nodes_text(device.numa_nodes or ()),
            holder(device.pod),
            device.container or "-",
        ),
        ("UID",),
        lambda device: (device.pod or "-",),
    )
    query = {"resource": args.resource}
    return _show(client, args, listing, lambda: client.ask("listDevices", query=query))


def resources(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl resources``."""
    listing = Listing(
        lambda resource: resource.name,
        ("RESOURCE", "CAPACITY", "ALLOCATABLE"),
        lambda resource: (resource.name, str(resource.capacity), str(resource.allocatable)),
    )
    return _show(client, args, listing, lambda: client.ask("listResources"))


def plugins(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl plugins``."""
    listing = Listing(
        lambda plugin: plugin.resource,
        ("RESOURCE", "ENDPOINT", "CONNECTED", "CAPACITY", "ALLOCATABLE"),
        lambda plugin: (
            plugin.resource,
            plugin.endpoint,
            _yes(plugin.connected),
            str(plugin.capacity),
            str(plugin.allocatable),
        ),
        ("PRESTART", "PREFERRED"),
        lambda plugin: (
            _yes(plugin.pre_start_required),
            _yes(plugin.get_preferred_allocation_available),
        ),
    )
    return _show(client, args, listing, lambda: client.ask("listPlugins"))


def held_text(containers: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Ids of a pod's devices, by container and resource, as one cell."""
    every = {
        (resource, id_)
        for by_resource in containers.values()
        for resource, ids in by_resource.items()
        for id_ in ids
    }
    return ids_text(sorted(id_ for _, id_ in every))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _show(
    client: MockKubeletClient,
    args: argparse.Namespace,
    listing: Listing,
    fetch: Callable[[], Any],
) -> int:
    if args.watch:
        return _watch(client, args.output, listing, fetch)
    print_items(listing, fetch(), args.output)
    return 0


def print_items(listing: Listing, answer: Any, form: str) -> None:
    """A list's answer, in one of the forms of lists."""
    if form in ("json", "yaml"):
        show(answer, form)
    elif form == "name":
        for item in answer.items:
            print(clean(listing.name(item)))
    else:
        is_wide = form == "wide"
        columns = (*listing.columns, *(listing.wide_columns if is_wide else ()))
        print_table(columns, [_cells(listing, item, is_wide) for item in answer.items])


def _cells(listing: Listing, item: Any, is_wide: bool) -> Cells:
    return (*listing.row(item), *(listing.wide_row(item) if is_wide else ()))


def _watch(client: MockKubeletClient, form: str, listing: Listing, fetch: Callable[[], Any]) -> int:
    """Print what is new or different after every event, until the server ends."""
    from devicemanager.control.errors import ServerGone

    seen: dict[str, Any] = {}
    latest = client.node().latest_event
    printer = _Printer(form, listing)
    printer.changes(seen, fetch().items)
    for _ in client.events.follow(latest):
        try:
            items = fetch().items
        except ServerGone:
            break  # it has ended since the event
        printer.changes(seen, items)
    return 0


class _Printer:
    """Prints items one by one; columns are as wide as they were at first."""

    def __init__(self, form: str, listing: Listing) -> None:
        self._form = form
        self._listing = listing
        self._widths: Sequence[int] = ()

    def changes(self, seen: dict[str, Any], items: Sequence[Any]) -> None:
        """Print what is not as ``seen`` has it, and note it there."""
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
            import json

            print(json.dumps(data(item)), flush=True)
        else:
            is_wide = self._form == "wide"
            columns = self._listing.columns + (self._listing.wide_columns if is_wide else ())
            cells = [clean(cell) for cell in _cells(self._listing, item, is_wide)]
            if not self._widths:
                self._widths = [
                    max(map(len, pair)) + 2 for pair in zip(columns, cells, strict=True)
                ]
                self._line(columns)
            self._line(cells)

    def _print_gone(self, name: str) -> None:
        if self._form in ("json", "yaml"):
            import json

            print(json.dumps({"deleted": name}), flush=True)
        else:
            print(f"{clean(name)} is gone", flush=True)

    def _line(self, cells: Sequence[str]) -> None:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        print("".join(padded).rstrip(), flush=True)
