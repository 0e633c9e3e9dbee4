"""The flags ``--api-server`` and ``--kubeconfig`` of ``devicemanager run``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import add_file
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.driver.simulated import SimulatedDriver
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.settings import Settings
    from devicemanager.testing.api_node import ApiNode

_NAME = "kubeconfig"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags ``--api-server`` and ``--kubeconfig`` to the parser."""
    group = parser.add_argument_group("API server")
    group.add_argument(
        "--api-server",
        action="store_true",
        help="also run an API server with a scheduler, and run the pods that are bound to this "
        "node; the kubeconfig of the server is the file kubeconfig in --root",
    )
    add_file(
        group,
        "--kubeconfig",
        "read ResourceClaims from the API server of this kubeconfig, and delete the ResourceSlices "
        "of drivers that are gone",
    )


def check(args: argparse.Namespace) -> None:
    """Raise CommandError if ``--api-server`` and ``--kubeconfig`` are both set."""
    if args.api_server and args.kubeconfig:
        raise CommandError("--api-server and --kubeconfig exclude each other: use one of them")


def apply(
    args: argparse.Namespace, settings: Settings, stack: contextlib.ExitStack
) -> tuple[Settings, ApiNode | None]:
    """Return a pair: ``settings`` with the selected API server, and the ``ApiNode`` or None.

    With ``--api-server``, start an API server; the second value is its ``ApiNode``. With
    ``--kubeconfig``, the second value is None. Without a flag, return ``settings`` unchanged, and
    None.
    """
    if args.kubeconfig:
        import attrs

        return attrs.evolve(settings, kubeconfig=Path(args.kubeconfig).absolute()), None
    if not args.api_server:
        return settings, None
    from devicemanager.testing.api_node import ApiNode

    node = stack.enter_context(ApiNode(settings.node_name))
    if args.root:
        directory = Path(args.root).absolute()
        # The kubeconfig is written before the kubelet creates its directory.
        directory.mkdir(parents=True, exist_ok=True)
    else:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dm-api-")))
    return node.settings(directory / _NAME, settings), node


_IN_SLICE = 128
"""Maximum number of devices in a ResourceSlice."""


def publish(
    node: ApiNode, kubelet: MockKubelet, driver: SimulatedDriver, stack: contextlib.ExitStack
) -> None:
    """Publish the devices of a simulated driver as ResourceSlices on the API server. Also create a
    DeviceClass with the driver's name.

    As a driver does, publish the slices again after the kubelet has deleted them.
    """
    from devicemanager.apiserver import StatusError
    from devicemanager.events.stream import Event, EventKind

    objects = [*_slices(driver, kubelet.settings.node_name), _class(driver)]

    def create() -> None:
        for each in objects:
            with contextlib.suppress(StatusError):  # it exists
                node.server.load(each)

    def happened(event: Event) -> None:
        if event.kind is EventKind.SLICES_WIPED:
            create()

    # Before the slices are created: the kubelet, which has just started, can delete the slices of
    # its node at any moment.
    stack.callback(kubelet.events.subscribe(happened))
    create()


def _slices(driver: SimulatedDriver, node: str) -> Iterator[dict[str, Any]]:
    names = driver.devices
    parts = [names[start : start + _IN_SLICE] for start in range(0, len(names), _IN_SLICE)]
    for number, part in enumerate(parts):
        pool = {"name": driver.pool, "generation": 1, "resourceSliceCount": len(parts)}
        spec = {"driver": driver.name, "pool": pool, "nodeName": node}
        metadata = {"name": f"{node}-{driver.name}-{number}"}
        devices = [{"name": each} for each in part]
        yield _object("ResourceSlice", metadata, {**spec, "devices": devices})


def _class(driver: SimulatedDriver) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{driver.name}"'}}
    return _object("DeviceClass", {"name": driver.name}, {"selectors": [selector]})


def _object(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def report(node: ApiNode, path: Path, log: KubeletLog) -> None:
    """Print the address of the API server, and the path of its kubeconfig."""
    log.say("api-server", f"api server: {node.server.url}", url=node.server.url)
    log.say(_NAME, f"kubeconfig: {path}", path=str(path))
    missing = next((each for each in _CEL if importlib.util.find_spec(each) is None), None)
    if missing is not None:
        # The Go client reads the kind.
        log.warn(
            "cel-unavailable",
            "the scheduler cannot evaluate the CEL selectors of DeviceClasses and claims: "
            f"{missing} is not installed: pip install 'kubelet-devicemanager[claims]'",
        )


_CEL = ("cel_expr_python", "re2")
"""Modules of the extra ``claims``."""
