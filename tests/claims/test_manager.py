"""Claims with pods, drivers and a state file, without threads and disk."""

from pathlib import Path

import pytest

import checkpoint
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.drivers import FakeDriver
from devicemanager.claims.errors import ClaimsError, DoesNotFit
from devicemanager.claims.pod_claims import PodClaims, claims_of
from devicemanager.claims.state_file import ClaimsState, StateWriter, parse_state
from devicemanager.claims.v1alpha1.objects import DeviceStatus
from devicemanager.core.errors import AllocationError, StartError
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from devicemanager.events.stream import EventKind, EventStream
from tests.claims.documents import claim, device_class, document, pool, read

DRIVER = "d.example.com"
A, B = DeviceKey(DRIVER, "p", "a"), DeviceKey(DRIVER, "p", "b")
MAIN = ContainerName("main")


class MemoryFile:
    """A state file without a disk."""

    def __init__(self, data=None):
        self.path = Path("device_claims_state")
        self.data = data
        self.aside = None
        self.writes = 0
        self.fails = False

    def read(self):
        if self.data is None:
            raise checkpoint.CheckpointNotFound(str(self.path))
        return self.data

    def write(self, data):
        if self.fails:
            raise checkpoint.CheckpointWriteError(str(self.path), "the disk is full")
        self.data = data if isinstance(data, bytes) else b"".join(data)
        self.writes += 1

    def set_aside(self):
        self.aside, self.data = self.data, None
        return Path("aside")

    def remove_leftovers(self):
        pass


class Node:
    """A manager over a pool with two devices, and claims x, y for one and both for two."""

    def __init__(self, file=None):
        self.events = EventStream()
        self.file = file or MemoryFile()
        self.manager = PodClaims(self.events, node="n0")
        two = {"deviceClass": "gpu", "requests": {"count": 2}}
        objects = pool(), device_class(), claim("x"), claim("y"), claim("both", two)
        self.manager.apply(map(read, objects))
        self.manager.load(self.file)

    def admit(self, name, *claims):
        found = pod(name, *claims)
        self.manager.admit(found)
        self.manager.admitted(found.uid)
        return found

    def leave(self, *pods):
        self.manager.remove_pods(*pods)
        self.manager.flush()

    def devices(self, name):
        allocation = self.manager.claim(f"default/{name}").allocation
        return [each.device.name for each in allocation.grants] if allocation else []

    def restarted(self):
        """The same node after a restart of the kubelet's process."""
        self.manager.close()
        return Node(self.file)

    def messages(self, kind):
        return [event.message for event in self.events.recent() if event.kind is kind]


def pod(name, *claims):
    names = {f"r-{each}": each for each in claims}
    container = Container(MAIN, claims=tuple(names))
    return Pod(PodUid(name), name, "default", (container,), resource_claims=names)


def test_admit_allocates_and_reserves_claims():
    node = Node()
    node.admit("p", "x", "y")
    assert (node.devices("x"), node.devices("y")) == (["a"], ["b"])
    view = node.manager.claim("default/x")
    assert (view.phase, view.users) == ("Reserved", {"p": "p"})
    assert view.claim.status.pod_names == ("p",)
    assert node.messages(EventKind.CLAIM_ALLOCATED) == [
        "claim default/x gets p/a",
        "claim default/y gets p/b",
    ]


def test_admit_writes_the_state_file_first():
    node = Node()
    node.admit("p", "x")
    restarted = node.restarted()
    assert restarted.devices("x") == ["a"]
    assert restarted.manager.claim("default/x").users == {"p": "p"}
    assert restarted.messages(EventKind.CLAIMS_LOADED) == ["device_claims_state: 1 allocated claim"]
    with pytest.raises(Rejected):
        restarted.admit("q", "both")


def test_admit_is_all_or_nothing():
    node = Node()
    with pytest.raises(Rejected) as caught:
        node.manager.admit(pod("p", "x", "both"))
    assert caught.value.reason == "UnexpectedAdmissionError"
    assert 'DeviceClaim "default/' in caught.value.message
    assert isinstance(caught.value.cause, DoesNotFit)
    assert node.devices("x") == node.devices("both") == [] and node.manager.pods() == frozenset()


def test_last_pod_releases_a_shared_claim():
    node = Node()
    node.admit("p", "x")
    node.admit("q", "x")
    assert node.manager.claim("default/x").claim.status.pod_names == ("p", "q")
    node.leave("p")
    assert node.devices("x") == ["a"]
    assert node.manager.claim("default/x").claim.status.pod_names == ("q",)
    node.leave("q")
    assert node.devices("x") == []
    assert node.manager.claim("default/x").phase == "Pending"
    assert node.messages(EventKind.CLAIM_RELEASED) == ["claim default/x released"]
    assert node.restarted().devices("x") == []


def test_unreserve_releases_what_was_allocated_for_the_pod():
    node = Node()
    node.admit("p", "x")
    node.manager.admit(pod("q", "x", "y"))
    node.manager.unreserve("q")
    assert (node.devices("x"), node.devices("y")) == (["a"], [])
    assert node.manager.claim("default/x").users == {"p": "p"}
    assert node.restarted().devices("y") == []


def test_unreserve_keeps_what_was_allocated_before():
    node = Node()
    node.manager.allocate("default/x")
    node.manager.admit(pod("q", "x"))
    node.manager.unreserve("q")
    assert node.devices("x") == ["a"]
    node.admit("q", "x")
    node.leave("q")
    assert node.devices("x") == []


def test_failed_write_rejects_the_pod():
    node = Node()
    node.file.fails = True
    with pytest.raises(Rejected, match="the disk is full"):
        node.admit("p", "x")
    assert node.devices("x") == [] and node.manager.pods() == frozenset()
    with pytest.raises(
        ClaimsError, match=r"^device_claims_state: cannot be written: the disk is full"
    ):
        node.manager.allocate("default/x")
    assert node.devices("x") == []
    node.file.fails = False
    node.admit("p", "both")


def test_unwritten_release_is_repeated_after_a_restart():
    node = Node()
    node.admit("p", "x")
    node.file.fails = True
    node.leave("p")
    assert node.messages(EventKind.CLAIMS_FAILED)
    node.file.fails = False
    restarted = node.restarted()
    assert restarted.devices("x") == ["a"]
    restarted.manager.remove_other_pods([])
    restarted.manager.flush()
    assert restarted.devices("x") == [] and restarted.restarted().devices("x") == []


def test_failed_write_of_another_caller_does_not_lose_a_release():
    node = Node()
    node.admit("p", "x")
    node.manager.remove_pods("p")
    node.file.fails = True
    with pytest.raises(ClaimsError):
        node.manager.allocate("default/y")
    node.file.fails = False
    node.manager.flush()
    assert node.restarted().devices("x") == []


def test_unchanged_state_is_not_written():
    node = Node()
    node.admit("p", "x")
    writes = node.file.writes
    node.manager.flush()
    node.leave("unknown")
    assert node.file.writes == writes
    node.leave("p")
    assert node.file.writes == writes + 1
    node.manager.flush()
    assert node.file.writes == writes + 1


def test_pods_of_the_state_file_keep_their_claims_until_all_pods_are_known():
    node = Node()
    assert node.manager.is_sources_ready
    node.admit("p", "x")
    node.admit("q", "y")
    restarted = node.restarted()
    assert not restarted.manager.is_sources_ready
    restarted.manager.remove_other_pods(["q"])
    assert restarted.manager.is_sources_ready
    assert (restarted.devices("x"), restarted.devices("y")) == ([], ["b"])


def test_explicit_allocations_survive_a_restart_without_pods():
    node = Node()
    node.manager.allocate("default/x")
    restarted = node.restarted()
    restarted.manager.remove_other_pods([])
    assert restarted.devices("x") == ["a"]
    restarted.manager.release("default/x")
    restarted.manager.release("default/x")
    assert restarted.devices("x") == [] and restarted.restarted().devices("x") == []


def test_release_rejects_a_claim_in_use():
    node = Node()
    node.admit("p", "x")
    node.manager.allocate("default/y")
    with pytest.raises(
        ClaimsError, match=r'^DeviceClaim "default/x" is used by pods \(p\): it can be'
    ):
        node.manager.release("default/y", "default/x")
    assert (node.devices("x"), node.devices("y")) == (["a"], ["b"])


def test_withdrawn_claim_is_deleted_when_its_pods_end():
    node = Node()
    node.admit("p", "x")
    assert node.manager.withdraw(read(claim("x")))
    assert not node.manager.withdraw(read(claim("x")))
    assert node.messages(EventKind.CLAIM_DELETION_WAITS) == [
        "claim default/x is used by p: it is deleted when no pod uses it"
    ]
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to "
        r'DeviceClaim "default/x" is being deleted',
    ):
        node.admit("q", "x")
    restarted = node.restarted()
    assert restarted.manager.claim("default/x").is_deleted
    restarted.manager.withdraw(read(claim("x")))
    restarted.leave("p")
    with pytest.raises(ClaimsError, match=r'^DeviceClaim "default/x" does not exist'):
        restarted.manager.claim("default/x")


def test_withdraw_releases_an_unused_claim():
    node = Node()
    node.manager.allocate("default/x")
    assert node.manager.withdraw(read(claim("x")))
    assert not node.manager.withdraw(read(claim("x")))
    node.admit("p", "both")
    assert node.manager.withdraw(read(pool())) and not node.manager.withdraw(read(pool()))
    assert node.manager.withdraw(read(device_class()))


def test_missing_device_stays_allocated_and_is_reported():
    node = Node()
    node.admit("p", "x")
    node.manager.publish(read(pool(devices=["b"])))
    node.manager.publish(read(pool(devices=["b"])))
    assert node.manager.claim("default/x").missing == (A,)
    assert node.messages(EventKind.CLAIM_DEVICE_GONE) == [
        "claim default/x has device p/a, which no pool offers any more"
    ]
    node.manager.publish(read(pool()))
    assert node.manager.claim("default/x").missing == ()
    with pytest.raises(Rejected, match="allocated to claim default/x"):
        node.admit("q", "both")


def test_pool_of_another_node_is_stored_and_reported():
    node = Node()
    node.manager.publish(read(pool("q", ["c", "d"], nodeName="n1")))
    assert node.messages(EventKind.POOL_PUBLISHED) == [
        "d.example.com publishes pool p: 2 devices",
        "d.example.com publishes pool q: 2 devices of node n1; claims on node n0 cannot use it",
    ]
    node.manager.submit(read(claim("x", {"deviceClass": "gpu", "requests": {"count": 3}})))
    with pytest.raises(Rejected, match="needs 3 devices"):
        node.admit("p", "x")


def test_unknown_claim_rejects_the_pod():
    node = Node()
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to "
        r'DeviceClaim "default/nosuch" does not exist',
    ):
        node.admit("p", "x", "nosuch")
    templated = Pod(PodUid("p"), "p", "default", (), resource_claims={"r": None})
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to resource "
        r'claim "r" uses a template',
    ):
        node.manager.admit(templated)


def test_node_without_claims_ignores_claims_of_pods():
    events = EventStream()
    manager = PodClaims(events, node="n0")
    manager.load(MemoryFile())
    manager.admit(pod("p", "x"))
    assert manager.pods() == frozenset()
    (event,) = [e for e in events.recent() if e.kind is EventKind.CLAIM_UNKNOWN]
    assert "the pod runs without them" in event.message


def test_stopped_kubelet_does_not_allocate_or_release():
    node = Node()
    node.manager.close()
    with pytest.raises(
        Rejected, match=r"^UnexpectedAdmissionError: Allocate failed due to the kubelet is stopped"
    ):
        node.admit("p", "x")
    for change in (node.manager.allocate, node.manager.release):
        with pytest.raises(ClaimsError, match=r"^the kubelet is stopped"):
            change("default/x")
    node.manager.publish(read(pool("q", ["c"])))
    assert [each.name for each in node.manager.pools()] == ["p", "q"]


# -- the state file ------------------------------------------------------------------------


def test_corrupt_file_is_set_aside_and_reported():
    node = Node(MemoryFile(b"garbage"))
    assert node.file.aside == b"garbage"
    (text,) = node.messages(EventKind.CLAIMS_SET_ASIDE)
    assert text.startswith("device_claims_state: not a state file of structured claims")
    node.admit("p", "both")
    assert node.restarted().devices("both") == ["a", "b"]


def test_contradictory_file_is_set_aside():
    one, other = Node(), Node()
    one.admit("p", "x")
    other.admit("q", "both")
    states = parse_state(one.file.data), parse_state(other.file.data)
    records = states[0].records + states[1].records
    both = ClaimsState(records, {**states[0].charges, **states[1].charges})
    node = Node(MemoryFile(StateWriter().render(both)))
    assert node.file.aside is not None
    assert "device p/a is already allocated" in node.messages(EventKind.CLAIMS_SET_ASIDE)[0]
    assert node.devices("x") == node.devices("both") == []


def test_unreadable_file_prevents_the_start():
    file = MemoryFile()

    def read_fails():
        raise checkpoint.CheckpointUnreadable("device_claims_state", "the disk reports an error")

    file.read = read_fails
    with pytest.raises(
        StartError, match=r"^device_claims_state: cannot be read: the disk reports an error"
    ):
        Node(file)
    assert file.aside is None


def test_claim_without_object_stays_allocated_while_in_use():
    node = Node()
    node.admit("p", "x")
    node.manager.close()
    events = EventStream()
    bare = PodClaims(events, node="n0")
    bare.load(node.file)
    view = bare.claim("default/x")
    assert view.users == {"p": "p"} and view.missing == (A,)
    bare.remove_pods("p")
    bare.flush()
    with pytest.raises(ClaimsError):
        bare.claim("default/x")


# -- drivers -------------------------------------------------------------------------------


def shown(node, found):
    (claim,) = node.manager.dynamic_resources(found, MAIN)
    return {each.device_name: each.cdi_devices for each in claim.claim_resources}


def test_devices_without_driver_have_no_cdi_names():
    node = Node()
    found = node.admit("p", "both")
    node.manager.prepare(found)
    assert shown(node, found) == {"a": (), "b": ()}
    assert node.manager.cdi_devices(found, MAIN) == ()


def test_pod_without_claims_has_no_version():
    node = Node()
    for name in ("p", "q"):
        node.admit(name, "both")
    node.leave("p")
    assert node.manager.pod_version("q") > node.manager.pod_version("p") == 0
    assert node.restarted().manager.pod_version("q") > 0
    node.leave("q")
    assert not node.manager._allocated.pod_versions


def test_prepared_devices_are_shown_and_survive_a_restart():
    node = Node()
    node.manager.set_driver(DRIVER, FakeDriver("gpu"))
    found = node.admit("p", "both")
    assert node.manager.dynamic_resources(found, MAIN) == ()
    before = node.manager.pod_version("p")
    node.manager.prepare(found)
    assert node.manager.pod_version("p") > before
    uid = node.manager.cdi_devices(found, MAIN)[1].removesuffix("-a").partition("=")[2]
    expected = {
        name: ("k8s.d.example.com/gpu=common", f"k8s.d.example.com/gpu={uid}-{name}")
        for name in "ab"
    }
    assert shown(node, found) == expected
    assert node.manager.cdi_devices(found, MAIN) == (
        "k8s.d.example.com/gpu=common",
        f"k8s.d.example.com/gpu={uid}-a",
        f"k8s.d.example.com/gpu={uid}-b",
    )
    restarted = node.restarted()
    restarted.manager.set_driver(DRIVER, FakeDriver("other"))
    restarted.manager.prepare(found)
    assert shown(restarted, found) == expected


def test_cdi_names_contain_the_uid_of_the_claim():
    node = Node()
    node.manager.set_driver(DRIVER, FakeDriver())
    node.manager.submit(read(document("DeviceClaim", "x", claim()["spec"], uid="1234")))
    found = node.admit("p", "x")
    node.manager.prepare(found)
    assert shown(node, found) == {
        "a": ("k8s.d.example.com/device=common", "k8s.d.example.com/device=1234-a")
    }


def test_health_and_devices_are_those_of_reserved_claims():
    node = Node()
    found = node.admit("p", "both")
    node.manager.publish(read(pool(devices=["b"])))
    assert node.manager.devices(found, MAIN) == {"both": ("p/a", "p/b")}
    assert node.manager.health(found, MAIN) == (
        ResourceStatus(
            "claim:r-both",
            (
                ResourceHealth("d.example.com/p/a", Health.UNHEALTHY),
                ResourceHealth("d.example.com/p/b", Health.HEALTHY),
            ),
        ),
    )
    other = pod("q", "both", "x")
    assert node.manager.health(other, MAIN) == ()
    assert node.manager.devices(other, MAIN) == {}


def test_failed_prepare_is_repeated():
    node = Node()
    node.manager.set_driver(DRIVER, FakeDriver(failures=1))
    found = node.admit("p", "x")
    with pytest.raises(AllocationError, match=r"^claim default/x: driver d\.example\.com cannot"):
        node.manager.prepare(found)
    assert node.devices("x") == ["a"]
    node.manager.prepare(found)
    assert set(shown(node, found)) == {"a"}


class Recording:
    """A driver that records its calls and cannot unprepare."""

    def __init__(self):
        self.calls = []

    def prepare(self, claim, devices):
        self.calls.append(("prepare", claim.id, tuple(devices)))
        return {}

    def unprepare(self, claim, devices):
        self.calls.append(("unprepare", claim.id, tuple(devices)))
        raise RuntimeError("no")


def test_devices_prepared_before_a_failure_are_written():
    node = Node()
    node.manager.publish(read(pool("q", ["c"], driver="other.example.com")))
    node.manager.define(read(device_class("other", driver="other.example.com")))
    mixed = claim("mixed", {"deviceClass": "gpu"}, {"deviceClass": "other"})
    node.manager.submit(read(mixed))
    node.manager.set_driver(DRIVER, FakeDriver("gpu"))
    node.manager.set_driver("other.example.com", FakeDriver(failures=1))
    found = node.admit("p", "mixed")
    with pytest.raises(AllocationError, match=r"driver other\.example\.com cannot prepare"):
        node.manager.prepare(found)
    restarted, driver = Node(node.file), Recording()  # without a stop: the process was killed
    restarted.manager.set_driver(DRIVER, driver)
    restarted.leave("p")
    assert driver.calls == [("unprepare", "default/mixed", (A,))]


def test_prepare_skips_prepared_devices():
    node, driver = Node(), Recording()
    node.manager.set_driver(DRIVER, driver)
    node.manager.prepare(node.admit("p", "x"))
    node.manager.prepare(node.admit("q", "x", "y"))
    assert driver.calls == [("prepare", "default/x", (A,)), ("prepare", "default/y", (B,))]


def test_report_replaces_the_last_report_of_a_driver():
    node = Node()
    node.manager.publish(read(pool("q", ["c"], driver="other.example.com")))
    node.manager.define(read(device_class("other", driver="other.example.com")))
    mixed = claim(
        "mixed", {"deviceClass": "gpu", "requests": {"count": 2}}, {"deviceClass": "other"}
    )
    node.manager.submit(read(mixed))
    node.admit("p", "mixed")

    def reported():
        statuses = node.manager.claim("default/mixed").claim.status.device_statuses
        return [(each.device_name, each.device_ip) for each in statuses]

    other = DeviceStatus("q", "c", device_ip="10.0.0.9")
    node.manager.report("other.example.com", "default/mixed", other)
    for _ in range(3):
        both = DeviceStatus("p", "b", device_ip="10.0.0.2"), DeviceStatus("p", "a")
        node.manager.report(DRIVER, "default/mixed", *both)
    assert reported() == [("a", ""), ("b", "10.0.0.2"), ("c", "10.0.0.9")]
    node.manager.report(DRIVER, "default/mixed", DeviceStatus("p", "a", device_ip="10.0.0.1"))
    assert reported() == [("a", "10.0.0.1"), ("c", "10.0.0.9")]
    stored = node.restarted().manager.claim("default/mixed").claim.status.device_statuses
    assert [each.device_name for each in stored] == ["a", "c"]


@pytest.mark.parametrize(
    ("driver", "status", "complaint"),
    [
        (DRIVER, DeviceStatus("p", "z"), "the device is not allocated to the claim"),
        (
            "evil.example.com",
            DeviceStatus("p", "a"),
            "p/a is not a device of driver evil",
        ),
        (DRIVER, DeviceStatus("p", "a", device_ips=("10.0.0.1",)), "must be equal to deviceIP"),
    ],
)
def test_report_rejects_foreign_devices_and_bad_addresses(driver, status, complaint):
    node = Node()
    node.admit("p", "both")
    fine = DeviceStatus("p", "b", device_ip="10.0.0.2")
    node.manager.report(DRIVER, "default/both", fine)
    with pytest.raises(ClaimsError, match=complaint):
        node.manager.report(driver, "default/both", status)
    assert node.manager.claim("default/both").claim.status.device_statuses == (fine,)
    with pytest.raises(ClaimsError, match="the device is not allocated to the claim"):
        node.manager.report(DRIVER, "default/x", DeviceStatus("p", "a"))


def test_driver_error_does_not_prevent_a_release():
    node, driver = Node(), Recording()
    node.manager.set_driver(DRIVER, driver)
    node.manager.prepare(node.admit("p", "x"))
    node.admit("q", "y")
    node.leave("p", "q")
    assert driver.calls == [("prepare", "default/x", (A,)), ("unprepare", "default/x", (A,))]
    assert node.devices("x") == []
    assert node.messages(EventKind.CLAIMS_FAILED) == [
        "claim default/x: driver d.example.com cannot unprepare: no"
    ]


def test_released_claim_is_not_shown():
    node = Node()
    found = node.admit("p", "x")
    assert shown(node, found) == {"a": ()}
    before = node.manager.version
    node.leave("p")
    assert node.manager.dynamic_resources(found, MAIN) == ()
    assert node.manager.version > before


def test_claim_named_twice_by_a_container_is_shown_once():
    names = {"one": "x", "two": "x", "three": "y"}
    container = Container(MAIN, claims=("one", "two"))
    found = Pod(PodUid("p"), "p", "ns", (container,), resource_claims=names)
    assert claims_of(found) == ("ns/x", "ns/y")
    assert claims_of(found, MAIN) == ("ns/x",)
