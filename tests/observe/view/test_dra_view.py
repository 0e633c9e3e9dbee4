"""Drivers, claims and slices in the view of a node."""

from __future__ import annotations

from devicemanager.core.dra.report import DraStatus
from devicemanager.observe.view import KubeletView, delta
from tests.node import Node
from tests.observe.dra import claim, status, waiting
from tests.observe.view.fake_node import ViewedNode


def test_unchanged_objects_are_reused():
    node = ViewedNode(Node())
    view = KubeletView(node)
    first = view.refresh()
    assert first.dra == DraStatus()
    node.dra = status()
    second = view.refresh()
    assert second.dra == status()
    assert second.revision == first.revision + 1
    node.dra = status()  # equal, but other objects
    assert view.refresh() is second
    node.dra = status(claim(), waiting())
    third = view.refresh()
    assert third.dra.claims[0] is second.dra.claims[0]
    assert third.dra.drivers is second.dra.drivers
    assert delta(second, third).dra is third.dra
    assert delta(third, third).dra is None


def test_stopped_kubelet_has_no_drivers():
    node = ViewedNode(Node())
    node.dra = status()
    view = KubeletView(node)
    view.refresh()
    node.stopped = True
    assert view.refresh().dra == DraStatus()


def test_view_of_a_kubelet_with_a_driver(mock_kubelet, simulated_driver):
    simulated_driver()
    view = KubeletView(mock_kubelet).refresh()
    assert view.dra == mock_kubelet.dra_status()
    assert view.dra.drivers[0].connected
