"""Allocation of containers: order of rejections, reuse, and recorded devices."""

from __future__ import annotations

import pytest

from devicemanager.core.allocation.container import AdmissionContext, by_numa_node
from devicemanager.core.allocation.rules import Rules
from devicemanager.core.allocation.selection import AllocateAnswer, AllocateWanted
from devicemanager.core.devices import Device
from devicemanager.core.errors import (
    AllocationError,
    RpcError,
)
from devicemanager.core.ids import ContainerName, DeviceId, PodUid
from devicemanager.core.inventory import EMPTY
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.rejection import Rejected
from tests.helpers import World, answer, container, device, device_list, devices, entries, pod
from tests.strategies import GPU, NIC

RESTARTING = AdmissionContext(sources_ready=False)


def hold(world: World, uid: str, *ids: str, name: str = "app", resource=GPU) -> None:
    """Add an entry as from a checkpoint."""
    held = AllocatedDevices({-1: tuple(map(DeviceId, ids))}, b"stored")
    world.ledger.restore([(PodUid(uid), ContainerName(name), resource, held)])


def rejection(world: World, *args, **keywords) -> str:
    """Return why the pod is rejected, and check that the ledger is unchanged."""
    before = entries(world.ledger)
    with pytest.raises(Rejected) as rejected:
        world.admit(*args, **keywords)
    assert rejected.value.reason == "UnexpectedAdmissionError"
    world.check()
    assert entries(world.ledger) == before
    start, end = "Allocate failed due to ", ", which is unexpected"
    assert rejected.value.message.startswith(start) and rejected.value.message.endswith(end)
    return rejected.value.message.removeprefix(start).removesuffix(end)


CHANGED = 'pod "p" container "app" changed request for resource "vendor.com/gpu" from 1 to 2'
UNREGISTERED = "cannot allocate unregistered device vendor.com/gpu"
NO_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices vendor.com/gpu"
HELD_UNHEALTHY = (
    "previously allocated devices are no longer healthy; "
    "cannot allocate unhealthy devices vendor.com/gpu"
)
SICK = [device("a", health="Unhealthy")]


def test_changed_request_is_checked_first():
    # Other checks would fail, too: the plugin is unknown, and the device has vanished.
    world = World({})
    hold(world, "p", "a")
    assert rejection(world, pod("p", gpu=2)) == CHANGED


def test_changed_request_is_checked_while_sources_are_not_ready():
    world = World({})
    hold(world, "p", "a")
    running = AdmissionContext(sources_ready=False, running=frozenset({ContainerName("app")}))
    assert rejection(world, pod("p", gpu=2), context=running) == CHANGED


def test_running_container_needs_nothing_while_sources_are_not_ready():
    world = World({GPU: SICK})
    hold(world, "p", "a")
    running = AdmissionContext(sources_ready=False, running=frozenset({ContainerName("app")}))
    world.admit(pod("p", gpu=1), context=running)
    assert world.held("p") == {"app": {GPU: ["a"]}}
    assert rejection(world, pod("p", gpu=1), context=RESTARTING) == NO_HEALTHY


def test_finished_init_container_needs_nothing_while_sources_are_not_ready():
    # Q5
    world = World({})
    hold(world, "p", "a", name="init")
    finished = frozenset({ContainerName("init")})
    spec = pod("p", container("app"), init=[container("init", gpu=1)])
    world.admit(spec, context=AdmissionContext(sources_ready=False, finished=finished))
    assert rejection(world, spec, context=RESTARTING) == UNREGISTERED
    quirk = Rules(quirks=frozenset({"Q5"}))
    assert (
        rejection(
            world,
            spec,
            context=AdmissionContext(sources_ready=False, finished=finished),
            rules=quirk,
        )
        == UNREGISTERED
    )


def test_unregistered_is_checked_before_health():
    world = World({})
    hold(world, "p", "a")
    assert rejection(world, pod("p", gpu=1)) == UNREGISTERED


def test_resource_in_use_is_a_device_resource():
    # It is not registered: the allocation of another pod makes it a device resource.
    world = World({})
    hold(world, "other", "a")
    assert rejection(world, pod("p", gpu=1)) == UNREGISTERED


def test_unknown_resource_is_not_a_device_resource():
    world = World({})
    world.admit(pod("p", gpu=3, nic=1))
    assert world.held("p") == {}


def test_no_healthy_device_is_checked_before_allocated_unhealthy():
    world = World({GPU: SICK})
    hold(world, "p", "a")
    assert rejection(world, pod("p", gpu=1)) == NO_HEALTHY


@pytest.mark.parametrize("rows", [[], SICK])
def test_no_healthy_device_is_rejected(rows):
    assert rejection(World({GPU: rows}), pod("p", gpu=1)) == NO_HEALTHY


@pytest.mark.parametrize(
    "rows", [[*SICK, device("b")], [device("b")]], ids=["fell ill", "vanished"]
)
def test_allocated_unhealthy_device_is_rejected(rows):
    world = World({GPU: rows})
    hold(world, "p", "a")
    assert rejection(world, pod("p", gpu=1)) == HELD_UNHEALTHY


def test_allocated_healthy_devices_need_no_call():
    world = World({GPU: devices("a", "b")})
    hold(world, "p", "a")

    def unexpected(wanted):
        raise AssertionError(wanted)

    world.admit(pod("p", gpu=1), unexpected)
    assert world.held("p") == {"app": {GPU: ["a"]}}


@pytest.mark.parametrize(
    ("rows", "in_use", "number", "text"),
    [
        (devices("a", "b"), [], 3, "Requested: 3, Available: 2"),
        (devices("a", "b"), ["a"], 2, "Requested: 2, Available: 1"),
        ([device("a"), *[device(id_, health="Sick") for id_ in "bc"]], [], 2,
         "Requested: 2, Available: 1"),
        (devices("a"), ["a"], 1, "Requested: 1, Available: 0"),
    ],
)  # fmt: skip
def test_too_few_available_devices_are_rejected(rows, in_use, number, text):
    world = World({GPU: rows})
    if in_use:
        hold(world, "other", *in_use)
    want = f"requested number of devices unavailable for vendor.com/gpu. {text}"
    assert rejection(world, pod("p", gpu=number)) == want


def test_rejection_counts_devices_needed_after_reuse():
    world = World({GPU: devices("a", "b", "c")})
    spec = pod("p", container("app", gpu=4), init=[container("init", gpu=2)])
    assert rejection(world, spec) == (
        "requested number of devices unavailable for vendor.com/gpu. Requested: 2, Available: 1"
    )


@pytest.mark.parametrize("rows", [[], SICK, devices("a")])
def test_request_of_zero_needs_nothing(rows):
    # Q16
    world = World({GPU: rows})
    world.admit(pod("p", gpu=0))
    assert world.held("p") == {}
    quirk = Rules(quirks=frozenset({"Q16"}))
    if rows != devices("a"):
        assert rejection(world, pod("p", gpu=0), rules=quirk) == NO_HEALTHY


def fails(*errors):
    """Create responses that fail at the n-th call."""
    left = list(errors)

    def answers(wanted):
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return answer(wanted)

    return answers


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (
            fails(RpcError("Unknown", "no preference for you")),
            "device plugin GetPreferredAllocation rpc failed with err: "
            "rpc error: code = Unknown desc = no preference for you",
        ),
        (
            fails(None, RpcError("Unavailable", "gone")),
            "rpc error: code = Unavailable desc = gone",
        ),
        (
            lambda wanted: AllocateAnswer(()) if isinstance(wanted, AllocateWanted) else (),
            "no containers return in allocation response ",
        ),
    ],
)
def test_failed_allocate_is_rejected(answers, text):
    assert rejection(World({GPU: devices("a", "b")}), pod("p", gpu=1), answers) == text


def test_failed_preference_leaves_nothing_in_use():
    # Q4: also the devices of earlier resources and containers of the pod.
    world = World({GPU: devices("a", "b"), NIC: devices("n")})
    spec = pod("p", container("one", gpu=1, nic=1), container("two", gpu=1))
    failing = fails(*[None] * 5, RpcError("Unknown", "no"))
    assert rejection(world, spec, failing) == "rpc error: code = Unknown desc = no"
    world.admit(spec)
    assert world.held("p") == {"one": {GPU: ["a"], NIC: ["n"]}, "two": {GPU: ["b"]}}


def test_quirk_leaves_devices_in_use():
    world = World({GPU: devices("a", "b")})
    quirk = Rules(quirks=frozenset({"Q4"}))
    empty = lambda wanted: AllocateAnswer(()) if isinstance(wanted, AllocateWanted) else ()  # noqa: E731
    with pytest.raises(Rejected):
        world.admit(pod("p", gpu=1), empty, rules=quirk)
    assert "Requested: 2, Available: 1" in rejection(world, pod("q", gpu=2))


def test_one_allocate_per_container_and_resource():
    world = World({NIC: devices("n"), GPU: devices("a", "b", "c")}, preferred=False)
    calls = []

    def answers(wanted):
        calls.append((wanted.resource, wanted.device_ids))
        return AllocateAnswer((b"first", b"second"))

    world.admit(pod("p", container("one", nic=1, gpu=2), container("two", gpu=1)), answers)
    assert calls == [(GPU, ("a", "b")), (NIC, ("n",)), (GPU, ("c",))]
    # Only the first container response counts.
    assert world.ledger.container(PodUid("p"), ContainerName("two"))[GPU].response == b"first"


def test_response_of_the_wrong_type_is_an_error():
    world = World({GPU: devices("a")}, preferred=False)
    with pytest.raises(
        TypeError, match=r"^invalid response to Allocate: \(\): expected an AllocateAnswer"
    ):
        world.admit(pod("p", gpu=1), lambda _: ())
    world.check()
    assert not world.ledger.is_in_use(GPU)


INIT_REUSE = [
    # requests of init containers and app containers, then the devices of each
    ("an app container takes what an init container had",
     [("i", 2, False)], [("a", 1), ("b", 2)],
     {"i": "d0 d1", "a": "d0", "b": "d1 d2"}),
    ("what an app container took is not handed on again",
     [("i", 1, False)], [("a", 1), ("b", 1)],
     {"i": "d0", "a": "d0", "b": "d1"}),
    ("init containers hand on to one another",
     [("i", 1, False), ("j", 3, False), ("k", 2, False)], [("a", 3)],
     {"i": "d0", "j": "d0 d1 d2", "k": "d0 d1", "a": "d0 d1 d2"}),
    ("a restartable init container keeps what it has",
     [("s", 2, True)], [("a", 1)],
     {"s": "d0 d1", "a": "d2"}),
    ("a restartable init container takes out of the pool, and keeps it",
     [("i", 2, False), ("s", 1, True), ("j", 1, False)], [("a", 2)],
     {"i": "d0 d1", "s": "d0", "j": "d1", "a": "d1 d2"}),
    ("an init container after a restartable one uses others",
     [("s", 1, True), ("i", 2, False)], [("a", 2)],
     {"s": "d0", "i": "d1 d2", "a": "d1 d2"}),
    ("more than was handed on is filled up",
     [("i", 1, False)], [("a", 3)],
     {"i": "d0", "a": "d0 d1 d2"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("init", "apps", "want"), [row[1:] for row in INIT_REUSE], ids=[row[0] for row in INIT_REUSE]
)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_reuse_of_init_container_devices(init, apps, want, scope):
    world = World({GPU: devices(*(f"d{n}" for n in range(5)))}, scope=scope)
    spec = pod(
        "p",
        *(container(name, gpu=count) for name, count in apps),
        init=[container(name, restartable, gpu=count) for name, count, restartable in init],
    )
    world.admit(spec)
    held = {name: " ".join(resources[GPU]) for name, resources in world.held("p").items()}
    assert held == want
    world.check()
    world.ledger.release(PodUid("p"))
    world.check()
    assert not world.ledger.is_in_use(GPU)


def test_reuse_is_per_resource():
    world = World({GPU: devices("a"), NIC: devices("a")})
    spec = pod("p", container("app", nic=1), init=[container("init", gpu=1)])
    world.admit(spec)
    assert world.held("p") == {"init": {GPU: ["a"]}, "app": {NIC: ["a"]}}


def test_devices_of_an_earlier_admission_are_reusable():
    world = World({GPU: devices("a", "b")})
    hold(world, "p", "b", name="init")
    world.admit(pod("p", container("app", gpu=1), init=[container("init", gpu=1)]))
    assert world.held("p") == {"init": {GPU: ["b"]}, "app": {GPU: ["b"]}}


def test_devices_are_recorded_by_numa_node():
    rows = [
        device("one", 1),
        device("both", 1, 0),
        device("free"),
        Device(DeviceId("empty"), numa=()),
        Device(DeviceId("same"), numa=(0, 0)),
    ]
    ids = frozenset(map(DeviceId, ["one", "both", "free", "empty", "same", "unlisted"]))
    assert by_numa_node(device_list(rows), ids) == {
        -1: ("empty", "free", "unlisted"),
        0: ("both", "same", "same"),
        1: ("both", "one"),
    }
    assert by_numa_node(EMPTY, frozenset({DeviceId("x")})) == {-1: ("x",)}


def test_containers_do_not_share_devices():
    world = World({GPU: devices("a", "b", "c")})
    hold(world, "p", "a", name="app")
    world.admit(pod("p", container("app", gpu=1), container("more", gpu=1)))
    assert world.held("p") == {"app": {GPU: ["a"]}, "more": {GPU: ["b"]}}


def test_rejections_name_the_cause():
    world = World({GPU: devices("a")})
    with pytest.raises(Rejected) as rejected:
        world.admit(pod("p", gpu=2))
    assert isinstance(rejected.value.__cause__, AllocationError)
