"""The states and faults of simulated DRA drivers on an in-memory node."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from devicemanager.core.errors import RequestError
from devicemanager.kubelet.inmemory.drivers import (
    ALWAYS,
    DriverState,
    InMemoryDriver,
    NodeDrivers,
)

GPU = "gpu.example.com"


@pytest.fixture
def node() -> NodeDrivers:
    return NodeDrivers({GPU: ("b", "a"), "nic.example.com": ()})


def failing(number: int) -> Callable[[DriverState], DriverState]:
    return lambda state: attrs.evolve(state, prepare_failures=number)


def test_change_concerns_one_driver(node: NodeDrivers) -> None:
    node.change(GPU, failing(1))
    assert node.state(GPU) == DriverState(prepare_failures=1)
    assert node.state("nic.example.com") == DriverState() == node.state("unknown")


def test_unknown_driver_is_an_error(node: NodeDrivers) -> None:
    with pytest.raises(RequestError) as caught:
        node.change("x", failing(1))
    assert str(caught.value) == (
        "unknown DRA driver x: the node has gpu.example.com, nic.example.com"
    )
    with pytest.raises(RequestError, match=r"the node has none$"):
        NodeDrivers().change("x", failing(1))


def test_number_of_failures_is_counted_down(node: NodeDrivers) -> None:
    node.change(GPU, failing(2))
    assert [node.fails_now(GPU) for _ in range(4)] == [True, True, False, False]
    assert node.state(GPU).prepare_failures == 0
    node.change(GPU, failing(ALWAYS))
    assert all(node.fails_now(GPU) for _ in range(4))


def test_changes_of_devices(node: NodeDrivers) -> None:
    changed: list[str] = []
    driver = InMemoryDriver(node, GPU, changed.append)
    assert (driver.resource, driver.is_connected) == (GPU, True)
    steps: list[tuple[Callable[[], None], DriverState]] = [
        (lambda: driver.leave(None), DriverState(is_stopped=True)),
        (lambda: driver.register(None), DriverState()),
        (lambda: driver.set_health("a", False, None), DriverState(unhealthy=frozenset("a"))),
        (lambda: driver.set_health("b", False, None), DriverState(unhealthy=frozenset("ab"))),
        (lambda: driver.set_health("a", True, None), DriverState(unhealthy=frozenset("b"))),
        (lambda: driver.set_health("b", True, None), DriverState()),
        (lambda: driver.lose("a", None), DriverState(lost=frozenset("a"))),
        (lambda: driver.lose("b", None), DriverState(lost=frozenset("ab"))),
        (lambda: driver.find("a", None), DriverState(lost=frozenset("b"))),
        (lambda: driver.lose_all(None), DriverState(lost=frozenset("ab"))),
        (lambda: driver.find(None, None), DriverState()),
    ]
    for number, (step, state) in enumerate(steps, start=1):
        step()
        assert node.state(GPU) == state
        assert driver.is_connected is not state.is_stopped
        assert changed == [GPU] * number


def test_unknown_device_is_an_error(node: NodeDrivers) -> None:
    driver = InMemoryDriver(node, GPU, lambda name: None)
    for change in (
        lambda: driver.set_health("x", False, None),
        lambda: driver.lose("x", None),
    ):
        with pytest.raises(RequestError) as caught:
            change()
        assert str(caught.value) == (
            "unknown device 'x' of driver gpu.example.com: the driver has a, b"
        )
    with pytest.raises(RequestError, match=r"the driver has none$"):
        InMemoryDriver(node, "nic.example.com", lambda name: None).lose("x", None)
    assert node.state(GPU) == DriverState()
