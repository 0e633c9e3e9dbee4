"""The simulated DRA drivers of ``devicemanager join``: ``--simulate-driver`` and ``--slices``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from devicemanager.cluster.driver_layouts import DriverLayout

__all__ = ["driver_option", "layouts", "recorded_layouts"]

# The API server's limit, which is shorter than that for other DNS subdomains.
_LONGEST_DRIVER = 63
_V1 = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}


def driver_option(text: str) -> tuple[str, tuple[int | None, ...]]:
    """Parse a DRA driver with devices, such as ``gpu.example.com=8@0,1``.

    Return the driver's name, and the NUMA node of each device (None for a device without one).
    Raises ArgumentTypeError.
    """
    from devicemanager.core.api.names import is_dns1123_subdomain
    from devicemanager.kubelet.inmemory.devices import places

    name, _, devices = text.partition("=")
    try:
        found = places(devices)
    except ValueError:
        found = ()
    if not is_dns1123_subdomain(name) or len(name) > _LONGEST_DRIVER or not found:
        raise argparse.ArgumentTypeError(
            f"invalid driver {text!r}: expected a name and devices, as in gpu.example.com=8 or "
            "gpu.example.com=8@0,1"
        )
    return name, found


def layouts(args: argparse.Namespace) -> tuple[DriverLayout, ...]:
    """Return the devices of the simulated DRA drivers on a node: one ``DriverLayout`` per driver.

    Raises CommandError.
    """
    if not args.simulate_driver and not args.slices:
        return ()
    # Imported here, because most commands have no drivers.
    from devicemanager.cluster.driver_layouts import simulated_driver

    found = [simulated_driver(name, numa) for name, numa in args.simulate_driver]
    found += [layout for file in args.slices for layout in recorded_layouts(file)]
    names = [layout.driver for layout in found]
    for name in names:
        if names.count(name) > 1:
            raise CommandError(f"driver {name} is given twice: remove one")
    return tuple(found)


def recorded_layouts(file: str) -> tuple[DriverLayout, ...]:
    """Return one ``DriverLayout`` for each driver with ResourceSlices in ``file``. The layout has
    the devices of the driver on one node.

    Raises CommandError.
    """
    from devicemanager.apiserver.conversion import to_stored
    from devicemanager.apiserver.kinds import KINDS, Kinds
    from devicemanager.apiserver.offline import check_objects
    from devicemanager.apiserver.resources import ResourceRules
    from devicemanager.cli.dra_files import read_objects
    from devicemanager.client.errors import ClusterError
    from devicemanager.cluster.driver_layouts import recorded

    kind = KINDS["resourceslices"]
    # Recorded slices can be a list of objects without kind and version.
    try:
        objects = [{**_V1, **each} for each in read_objects([file])]
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    slices = [
        each
        for each in objects
        if each["kind"] == kind.name and each["apiVersion"] in Kinds().versions(kind)
    ]
    if not slices:
        raise CommandError(
            f"{file}: no ResourceSlices: use the output of `kubectl get resourceslices -o yaml`"
        )
    report = check_objects(slices, ResourceRules([]))
    # Checked as by the API server, which would otherwise reject the slices of every node. An error
    # is one line, so only the first problem is shown.
    for problem in report.problems:
        raise CommandError(f"{file}: {problem}")
    try:
        return recorded([to_stored(kind, each["apiVersion"], each) for each in slices])
    except ClusterError as error:
        raise CommandError(f"{file}: {error}") from None
