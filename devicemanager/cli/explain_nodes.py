"""The node of ``devicemanager explain``: from flags and files, or from a snapshot."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from devicemanager.cli import settings_options
from devicemanager.cli.files import load_checkpoint

if TYPE_CHECKING:
    from checkpoint import Checkpoint
    from devicemanager.cli.offline_node import Inventory, OfflineNode
    from devicemanager.cli.offline_snapshot import SnapshotNode
    from devicemanager.kubelet.settings import Settings

__all__ = ["Paper", "papers"]


class Paper(NamedTuple):
    """A node on paper before any pod of the command line."""

    inventory: Inventory
    settings: Settings
    saved: Checkpoint | None = None
    names: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def node(self) -> OfflineNode:
        """The node, ready to admit."""
        from devicemanager.cli.offline_node import OfflineNode

        return OfflineNode(self.settings, self.inventory, self.saved, self.names)


def papers(args: argparse.Namespace) -> list[Paper]:
    """The node to explain, and as it is without what --what-if and --without-pod change."""
    from devicemanager.cli.offline_node import nodes_of

    if args.snapshot is None:
        saved = None if args.checkpoint is None else load_checkpoint(args.checkpoint)
        inventory = _inventory(args, saved)
        return [Paper(inventory, settings_options.settings_from(args, nodes_of(inventory)), saved)]
    from devicemanager.cli.snapshot import load_snapshot

    snapshot = load_snapshot(args.snapshot)
    from devicemanager.cli.offline_snapshot import SnapshotNode
    from devicemanager.snapshot.node import Node

    there = SnapshotNode.of(Node(snapshot))
    if not args.what_if and not args.without_pod:
        return [_paper(args, there)]
    return [_paper(args, there.changed(args.what_if, args.without_pod)), _paper(args, there)]


def _paper(args: argparse.Namespace, there: SnapshotNode) -> Paper:
    from devicemanager.cli.offline_node import nodes_of

    inventory = there.inventory()
    _change(inventory, args)
    given = argparse.Namespace(**vars(args))
    given.topology_policy = args.topology_policy or there.aligned.policy
    given.topology_scope = args.topology_scope or there.aligned.scope
    given.topology_options = [*there.aligned.options.items(), *args.topology_options]
    settings = settings_options.settings_from(given, nodes_of(inventory), there.machine(inventory))
    return Paper(inventory, settings, there.saved, there.names, there.notes)


def _inventory(args: argparse.Namespace, saved: Checkpoint | None) -> Inventory:
    from devicemanager.cli.offline_node import add_allocatable, add_checkpoint

    inventory: Inventory = {}
    if saved is not None:
        add_checkpoint(inventory, saved)
    if args.allocatable is not None:
        add_allocatable(inventory, args.allocatable)
    _change(inventory, args)
    return inventory


def _change(inventory: Inventory, args: argparse.Namespace) -> None:
    """As --devices and --unhealthy say."""
    from devicemanager.cli.offline_node import add_option, make_unhealthy

    for option in args.devices:
        add_option(inventory, option)
    for resource, ids in args.unhealthy:
        make_unhealthy(inventory, resource, ids)
