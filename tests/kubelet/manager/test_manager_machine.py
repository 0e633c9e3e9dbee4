"""The manager against a model, through any sequence of events that a node can see."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

import checkpoint
from checkpoint.shared_writer import MemoryStore
from devicemanager.core.devices import Device
from devicemanager.core.errors import (
    RequestError,
    RpcError,
)
from devicemanager.core.ids import EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.manager.plugin_handler import ClientHandler
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.fakes import FakeCall, FakePlugin
from tests import strategies
from tests.helpers import entries
from tests.strategies import RESOURCES

GRACE = 300.0
SOCKETS = st.sampled_from(["a.sock", "b.sock"])
UIDS = st.sampled_from(["p", "q", "r"])


@attrs.define(eq=False)
class Connection:
    """One registration in the model."""

    endpoint: EndpointId
    resource: ResourceName
    name: str
    plugin: FakePlugin
    handler: ClientHandler
    """The manager it registered with, possibly that of an earlier kubelet."""
    rows: list[Device] | None = None


@attrs.define(eq=False)
class Known:
    """One resource in the model: its connected plugins, newest last, and its visible devices."""

    connections: list[Connection] = attrs.field(factory=list)
    shown: dict[str, bool] = attrs.field(factory=dict)
    """Device to True if it is allocatable."""
    stopped_at: float | None = None
    is_listed: bool = False
    """True if a plugin has sent a list, or the checkpoint names the resource."""
    has_stopped: bool = False
    """True if its last plugin has disconnected, also if another one has connected since."""

    @property
    def is_counted(self) -> bool:
        return self.is_listed or self.has_stopped

    def show(self, rows: list[Device]) -> None:
        self.is_listed = True
        self.shown = {row.id: row.is_healthy for row in rows}

    def leave(self, connection: Connection, now: float) -> None:
        if connection not in self.connections:
            return
        was_serving = self.connections[-1] is connection
        self.connections.remove(connection)
        if not self.connections:
            self.shown = dict.fromkeys(self.shown, False)
            self.has_stopped, self.stopped_at = True, now
        elif was_serving and self.connections[-1].rows is not None:
            self.show(self.connections[-1].rows)


class ManagerMachine(RuleBasedStateMachine):
    """Any sequence of registrations, lists, disconnects, pods, time and restarts.

    What the model cannot predict (which devices, which pod of several) is checked instead.
    """

    connections = Bundle("connections")

    @initialize(
        target=connections,
        policy=strategies.policies,
        scope=strategies.scopes,
        lists=st.tuples(*[strategies.full_lists] * len(RESOURCES)),
        preference=strategies.preferences,
        version=st.sampled_from(["1.24", "1.36", "1.37"]),
    )
    def start(self, policy, scope, lists, preference, version):
        self.settings = Settings(
            kubelet_version=version,
            topology_policy=policy,
            topology_scope=scope,
            numa=NumaTopology.of(list(strategies.NODES)),
        )
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.manager = self._manager()
        self.known: dict[ResourceName, Known] = {}
        self.held: dict[str, dict[str, dict[str, Any]]] = {}
        made = [self._connect(resource, "a.sock", preference) for resource in RESOURCES]
        for connection, rows in zip(made, lists, strict=True):
            self._list(connection, rows)
        return multiple(*made)

    def _manager(self) -> DeviceManager:
        return DeviceManager(self.settings, store=self.store, clock=self.clock)

    # -- plugins -----------------------------------------------------------------------

    @rule(
        target=connections,
        resource=st.sampled_from(RESOURCES),
        name=SOCKETS,
        preference=strategies.preferences,
    )
    def connect(self, resource, name, preference):
        return self._connect(resource, name, preference)

    def _connect(self, resource, name, preference) -> Connection:
        plugin = FakePlugin(resource, preference)
        endpoint = plugin.register(self.manager.plugins, name)
        connection = Connection(endpoint, resource, name, plugin, self.manager.plugins)
        known = self.known.setdefault(resource, Known())
        several = self.settings.behaviour.several_plugins
        remaining = [each for each in known.connections if several and each.name != name]
        assert all(each.plugin.closed for each in known.connections if each not in remaining)
        known.connections = remaining
        known.connections.append(connection)
        known.stopped_at = None
        return connection

    @rule(connection=connections, rows=strategies.device_lists | strategies.full_lists)
    def list(self, connection, rows):
        # Also on connections that have ended: then nothing may change.
        self._list(connection, rows)

    def _list(self, connection: Connection, rows: list[Device]) -> None:
        connection.handler.update(connection.endpoint, Columns.of(rows))
        known = self.known.get(connection.resource)
        if known is not None and connection in known.connections:
            connection.rows = rows
            if known.connections[-1] is connection:
                known.show(rows)

    @rule(connection=connections)
    def leave(self, connection):
        self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        connection.handler.disconnect(connection.endpoint, "left")
        known = self.known.get(connection.resource)
        if known is not None:
            known.leave(connection, self.clock.monotonic())

    # -- pods --------------------------------------------------------------------------

    @rule(uid=UIDS, spec=strategies.light_pods("pod"))
    def admit(self, uid, spec):
        self._admit(attrs.evolve(spec, uid=PodUid(uid)))

    @rule(
        uid=UIDS,
        spec=strategies.light_pods("pod"),
        at=st.integers(0, 3),
        what=st.sampled_from(["list", "leave", "admit", "release", "fail", "empty", "bug"]),
        rows=strategies.device_lists | strategies.full_lists,
        other=UIDS,
        other_spec=strategies.light_pods("other"),
        chosen=st.integers(0, 3),
    )
    def admit_and_be_disturbed(self, uid, spec, at, what, rows, other, other_spec, chosen):
        """Admit a pod; at RPC number ``at`` of the admission something else happens."""
        left = [at]
        serving = [each for known in self.known.values() for each in known.connections]

        def disturb(call: FakeCall) -> None:
            left[0] -= 1
            if left[0] != -1:
                return
            event(f"disturbed: {what}")
            connection = serving[chosen % len(serving)]
            match what:
                case "list":
                    self._list(connection, rows)
                case "leave":
                    self._leave(connection)
                case "admit" if other != uid:
                    self._admit(attrs.evolve(other_spec, uid=PodUid(other)))
                case "admit":
                    self._reject_twin(attrs.evolve(other_spec, uid=PodUid(other)))
                case "release":
                    self.terminate(other)
                case "fail":
                    raise RpcError("Unknown", "no")
                case "bug":
                    raise ZeroDivisionError

        empty = what == "empty"
        for connection in serving:
            connection.plugin.before_answer = disturb
            connection.plugin.responses = () if empty else (b"",)
        try:
            self._admit(attrs.evolve(spec, uid=PodUid(uid)))
        finally:
            for connection in serving:
                connection.plugin.before_answer = lambda call: None
                connection.plugin.responses = (b"",)

    def _reject_twin(self, spec: Pod) -> None:
        try:
            self.manager.admit(spec)
        except RequestError as error:
            assert "is already being admitted" in str(error)
        else:
            raise AssertionError("one pod was admitted twice at a time")

    def _admit(self, spec: Pod) -> None:
        try:
            self.manager.admit(spec)
        except (Rejected, ZeroDivisionError):
            pass
        else:
            self._note(spec)

    def _note(self, spec: Pod) -> None:
        now = entries(self.manager.state.ledger).get(spec.uid, {})
        before = self.held.get(spec.uid, {})
        for name, by_resource in before.items():
            for resource, holding in by_resource.items():
                assert now[name][resource] == holding, "what was held has changed"
        wanted = {each.name: each.limits for each, _ in spec.all_containers()}
        for name, by_resource in now.items():
            for resource, holding in by_resource.items():
                if resource not in before.get(name, {}):
                    assert len(holding.ids) == wanted[name][resource] > 0
        if now:
            self.held[spec.uid] = now
            event("admitted with devices")

    @rule(uid=UIDS)
    def terminate(self, uid):
        self.manager.release(PodUid(uid))
        self.held.pop(uid, None)

    # -- time and restarts ---------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 299.0, 300.0, 301.0]))
    def time_passes(self, seconds):
        expired = len(self.manager.events.recent(EventKind.ENDPOINT_EXPIRED))
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        gone = sorted(
            name
            for name, known in self.known.items()
            if known.stopped_at is not None and now - known.stopped_at > GRACE
        )
        events = self.manager.events.recent(EventKind.ENDPOINT_EXPIRED)[expired:]
        assert sorted(str(each.resource) for each in events) == gone
        assert self.manager.removed() >= set(gone)
        for name in gone:
            del self.known[name]

    @precondition(lambda self: self.held)
    @rule(
        target=connections,
        survivors=st.sets(UIDS),
        ready=st.booleans(),
        back=st.sets(st.sampled_from(RESOURCES)),
        rows=strategies.full_lists,
    )
    def restart(self, survivors, ready, back, rows):
        """Kill the kubelet and start it again; plugins must re-register."""
        event("restarted")
        saved = checkpoint.loads(self.store.data)
        before = entries(self.manager.state.ledger)
        self.manager.close()
        self.manager = self._manager()
        self.manager.restore(saved)
        assert entries(self.manager.state.ledger) == before
        now = self.clock.monotonic()
        named = saved.registered_devices or {}
        self.known = {ResourceName(name): Known(stopped_at=now, is_listed=True) for name in named}
        if ready:
            self.manager.sources_ready(frozenset(map(PodUid, survivors)))
            self.held = {uid: held for uid, held in self.held.items() if uid in survivors}
        made = [self._connect(resource, "a.sock", None) for resource in sorted(back)]
        for connection in made:
            self._list(connection, rows)
        return multiple(*made)

    # -- invariants -----------------------------------------------------------------------

    @invariant()
    def the_ledger_holds_what_was_answered(self):
        # Rejected pods left nothing, admitted pods lost nothing, and every index is correct.
        self.manager.self_check()
        assert entries(self.manager.state.ledger) == self.held

    @invariant()
    def no_device_has_two_pods(self):
        seen: dict[tuple[str, str], str] = {}
        for uid, by_container in entries(self.manager.state.ledger).items():
            for by_resource in by_container.values():
                for resource, holding in by_resource.items():
                    for id_ in holding.ids:
                        assert seen.setdefault((resource, id_), uid) == uid

    @invariant()
    def counts_are_those_of_the_lists(self):
        counts = self.manager.capacity()
        counted = {name: known for name, known in self.known.items() if known.is_counted}
        assert counts.capacity == {name: len(known.shown) for name, known in counted.items()}
        assert counts.allocatable == {
            name: sum(known.shown.values()) for name, known in counted.items()
        }

    @invariant()
    def the_file_says_what_the_ledger_says(self):
        if self.store.data is None:
            assert not self.held
            return
        rows = checkpoint.loads(self.store.data).entries or ()
        assert {(row.pod_uid, row.container_name, row.resource_name) for row in rows} == {
            (uid, name, resource)
            for uid, by_container in self.held.items()
            for name, by_resource in by_container.items()
            for resource in by_resource
        }


ManagerMachine.TestCase.settings = settings(stateful_step_count=40)
TestNode = ManagerMachine.TestCase
