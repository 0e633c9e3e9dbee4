"""Views built from PodResources responses."""

from __future__ import annotations

import podresources
from devicemanager.observe.view import DeviceState, Holder, PodResourcesView, delta
from tests.helpers import pod
from tests.node import GPU, Node, rows

FREE, ALLOCATED, GONE = DeviceState.FREE, DeviceState.ALLOCATED, DeviceState.GONE


def answers(node: Node):
    """Return the responses as sent over the wire: an entry for each device and NUMA node."""
    source = node.source()
    pods = [
        podresources.Pod(
            each.name,
            each.namespace,
            tuple(
                podresources.Container(
                    container.name,
                    tuple(entry for devices in container.devices for entry in devices.entries()),
                )
                for container in each.containers
            ),
        )
        for each in source.pods()
    ]
    allocatable = source.allocatable()
    devices = tuple(entry for devices in allocatable.devices for entry in devices.entries())
    return pods, podresources.Allocatable(devices)


def test_devices_are_free_or_allocated_to_a_pod():
    node = Node()
    node.plugin(rows("b1-"))
    node.admit(pod("p", gpu=1))

    view = PodResourcesView("here").refresh(*answers(node))

    (resource,) = view.resources
    assert (resource.name, resource.states) == (GPU, (ALLOCATED, FREE, FREE))
    assert resource.device(0).holders == (Holder("default/p", "app"),)
    assert resource.layout.numa == ((0, 1), (1,), None)
    assert view.numa_nodes == (0, 1)
    assert view.pods[0].containers[0].devices == {GPU: ("d0",)}


def test_allocated_device_that_is_not_allocatable_is_gone():
    node = Node()
    plugin = node.plugin(rows("01"))
    node.admit(pod("p", gpu=1))
    plugin.send_list(rows("01", d0="Unhealthy"))

    (resource,) = PodResourcesView("here").refresh(*answers(node)).resources

    assert dict(zip(resource.layout.ids, resource.states, strict=True)) == {"d0": GONE, "d1": FREE}


def test_view_of_podresources_has_notes():
    view = PodResourcesView("here").refresh([], podresources.Allocatable())

    assert (view.plugins, view.events) == (None, None)
    assert "unhealthy" in view.notes[0]


def test_equal_responses_reuse_the_view_and_its_parts():
    node = Node()
    node.plugin(rows("01"))
    node.plugin(rows("0"), resource="vendor.com/nic", name="nic.sock")
    node.admit(pod("p", gpu=1))
    view = PodResourcesView("here")
    before = view.refresh(*answers(node))
    assert view.refresh(*answers(node)) is before

    node.admit(pod("q", gpu=1))

    after = view.refresh(*answers(node))
    assert after.resources[1] is before.resources[1]
    assert after.pods[0] is before.pods[0]
    assert after.resources[0].layout is before.resources[0].layout
    changes = delta(before, after)
    assert (changes.devices[0].numbers, [each.uid for each in changes.pods]) == (
        (1,),
        ["default/q"],
    )


def test_view_without_allocatable_list_shows_allocated_devices():
    node = Node()
    node.plugin(rows("01"))
    node.admit(pod("p", gpu=1))
    pods, _ = answers(node)

    view = PodResourcesView("here").refresh(pods, None)

    (resource,) = view.resources
    assert (resource.layout.ids, resource.states) == (("d0",), (ALLOCATED,))
    assert "does not list allocatable devices" in view.notes[0]


def test_pod_has_devices_of_claims():
    given = podresources.ClaimResource("driver", "pool", "a")
    claim = podresources.DynamicResource("c", "default", (given,))
    response = podresources.Pod(
        "p", "default", (podresources.Container("app", dynamic_resources=(claim,)),)
    )

    (shown,) = PodResourcesView("here").refresh([response], podresources.Allocatable()).pods

    assert shown.containers[0].claim_devices == {"c": ("pool/a",)}
