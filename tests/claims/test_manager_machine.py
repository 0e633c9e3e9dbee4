"""In any order of events: pods have all their claims, no claim is allocated without a user, and
the state file agrees with the kubelet."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devicemanager.claims.drivers import FakeDriver
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.pod_claims import PodClaims
from devicemanager.claims.state_file import parse_state
from devicemanager.core.rejection import Rejected
from devicemanager.events.stream import EventStream
from tests import strategies
from tests.claims.documents import claim, device_class, pool, read
from tests.claims.test_manager import DRIVER, MemoryFile, pod

CLAIMS = {
    "one": {"deviceClass": "gpu"},
    "two": {"deviceClass": "gpu", "requests": {"count": 2}},
    "some": {"deviceClass": "gpu", "requests": {"memory": "3Gi"}},
    "more": {"deviceClass": "gpu", "requests": {"memory": "6Gi"}},
    "all": {"deviceClass": "admin"},
}
names = st.sampled_from(sorted(CLAIMS))
pods = st.sampled_from("pqrs")
offers = st.sets(st.sampled_from("abcd"))


def offer(devices):
    memory = {"name": "memory", "capacity": "8Gi", "blockSize": "1Gi"}
    found = [
        {"name": name, "resources": [memory], "requests": {"power": 1}} for name in sorted(devices)
    ]
    return read(pool(devices=found, resources=[{"name": "power", "capacity": 3}]))


class Claims(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.file = MemoryFile()
        self.manager = PodClaims(EventStream(), node="n0")
        self.manager.define(read(device_class()))
        self.manager.define(read(device_class("admin", adminAccess=True)))
        self.manager.publish(offer("abcd"))
        for name, instance in CLAIMS.items():
            self.manager.submit(read(claim(name, instance)))
        self.manager.load(self.file)
        self.pods = {}
        self.explicit = set()

    @rule(uid=pods, wanted=st.sets(names, min_size=1, max_size=2), is_admitted=st.booleans())
    def admit(self, uid, wanted, is_admitted):
        if uid in self.pods:
            return
        found = pod(uid, *sorted(wanted))
        try:
            self.manager.admit(found)
        except Rejected:
            return
        if is_admitted:
            self.manager.admitted(uid)
            self.pods[uid] = found
            self.explicit -= {f"default/{name}" for name in wanted}
        else:
            self.manager.unreserve(uid)

    @rule(uid=pods)
    def end(self, uid):
        self.manager.remove_pods(uid)
        self.manager.flush()
        self.pods.pop(uid, None)

    @rule(name=names)
    def allocate(self, name):
        was = self.manager.claim(f"default/{name}").allocation
        try:
            self.manager.allocate(f"default/{name}")
        except ClaimsError:
            return
        if was is None:
            self.explicit.add(f"default/{name}")

    @rule(name=names)
    def release(self, name):
        try:
            self.manager.release(f"default/{name}")
        except ClaimsError:
            assert self.manager.claim(f"default/{name}").users
        else:
            self.explicit.discard(f"default/{name}")

    @rule(name=names)
    def delete_and_make_again(self, name):
        found = read(claim(name, CLAIMS[name]))
        self.manager.withdraw(found)
        self.manager.submit(found)
        if not self.manager.claim(found.id).users:
            self.explicit.discard(found.id)

    @rule(devices=offers)
    def publish(self, devices):
        self.manager.publish(offer(devices))

    @rule(is_there=st.booleans())
    def driver(self, is_there):
        self.manager.set_driver(DRIVER, FakeDriver() if is_there else None)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def prepare(self, data):
        self.manager.prepare(self.pods[data.draw(st.sampled_from(sorted(self.pods)))])

    @rule()
    def restart(self):
        before = self.manager.view()
        self.manager.close()
        self.manager.load(self.file)
        assert self.manager.view() == before
        self.manager.remove_other_pods(self.pods)
        assert self.manager.view() == before

    @invariant()
    def pods_have_all_their_claims(self):
        users = {view.claim.id: set(view.users) for view in self.manager.view()}
        for uid, found in self.pods.items():
            for name in found.resource_claims.values():
                assert uid in users[f"default/{name}"]
        assert self.manager.pods() == set(self.pods)

    @invariant()
    def no_claim_is_allocated_without_a_user(self):
        for view in self.manager.view():
            is_allocated = view.allocation is not None
            assert is_allocated == bool(view.users or view.claim.id in self.explicit)
            assert set(view.claim.status.pod_names) == set(view.users.values())
            allocated = view.claim.status.allocations
            assert len(allocated) == (len(view.allocation.grants) if is_allocated else 0)

    @invariant()
    def the_file_agrees(self):
        if self.file.data is None:
            return
        loaded = PodClaims(EventStream(), node="n0")
        loaded.load(MemoryFile(self.file.data))
        stored = [(v.claim, v.allocation, v.users) for v in loaded.view()]
        assert stored == [
            (v.claim, v.allocation, v.users) for v in self.manager.view() if v.allocation
        ]
        assert len(parse_state(self.file.data).records) == len(stored)


Claims.TestCase.settings = settings(strategies.examples(0.5), stateful_step_count=20)
TestClaims = Claims.TestCase
