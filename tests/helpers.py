"""Short constructors for devices and pods, the core without gRPC and threads (``World``), and
measures."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from importlib import import_module
from importlib.util import module_from_spec
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import attrs
import msgspec
import pytest

from devicemanager.core.allocation.container import AdmissionContext, AllocationSteps, PodAllocation
from devicemanager.core.allocation.pod import DeviceHintProvider, admit_pod
from devicemanager.core.allocation.rules import Rules
from devicemanager.core.allocation.selection import AllocateAnswer, Answer, PreferenceWanted, Wanted
from devicemanager.core.api.deviceplugin import HEALTHY
from devicemanager.core.devices import Device, Nodes
from devicemanager.core.endpoints import Endpoints, PluginOptions
from devicemanager.core.ids import ContainerName, DeviceId, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import EMPTY, Columns, DeviceList, device_list_from
from devicemanager.core.ledger import Draft, Ledger
from devicemanager.core.pods import Container, Pod
from devicemanager.core.topology import NumaTopology, configure
from devicemanager.testing import fakes


def device(id_: str, *nodes: int, health: str = HEALTHY) -> Device:
    """Return a device on these NUMA nodes; without nodes it has no topology."""
    numa: Nodes = nodes or None
    return Device(DeviceId(id_), health, numa)


def devices(*ids: str) -> list[Device]:
    """Return healthy devices without topology."""
    return [device(id_) for id_ in ids]


def device_list(rows: Iterable[Device], previous: DeviceList = EMPTY) -> DeviceList:
    return device_list_from(Columns.of(rows), previous)


def container(name: str, restartable: bool = False, **amounts: int) -> Container:
    """Return a container; ``gpu=2`` requests two of ``vendor.com/gpu``."""
    limits = {ResourceName(f"vendor.com/{key}"): amount for key, amount in amounts.items()}
    return Container(ContainerName(name), limits, limits, restartable)


def pod(uid: str, *apps: Container, init: Iterable[Container] = (), **amounts: int) -> Pod:
    """Return a pod with these app containers, or with one named ``app`` that requests amounts."""
    containers = apps or (container("app", **amounts),)
    return Pod(PodUid(uid), uid, "default", tuple(containers), tuple(init))


def held_by(ledger: Ledger, uid: str) -> dict[str, dict[str, list[str]]]:
    """Return the sorted device IDs of a pod by container and resource."""
    return {
        name: {resource: sorted(holding.ids) for resource, holding in holdings.items()}
        for name, holdings in ledger.pod(PodUid(uid)).items()
    }


def entries(ledger: Ledger) -> dict[str, Any]:
    """Return a copy of all committed allocations."""
    return {
        uid: {name: dict(holdings) for name, holdings in ledger.pod(uid).items()}
        for uid in ledger.pods()
    }


def holders(ledger: Ledger, drafts: Iterable[Draft] = ()) -> dict[tuple[str, str], set[str]]:
    """Return the pods that use each (resource, device), counted without the ledger's indexes."""
    found: dict[tuple[str, str], set[str]] = {}
    for uid in ledger.pods():
        for holdings in ledger.pod(uid).values():
            for resource, holding in holdings.items():
                for ids in holding.devices.values():
                    for id_ in ids:
                        found.setdefault((resource, id_), set()).add(uid)
    for draft in drafts:
        for resource, reservations in draft.reserved.items():
            for id_ in frozenset().union(*reservations):
                found.setdefault((resource, id_), set()).add(draft.pod)
    return found


def answer(wanted: Wanted, preference: fakes.Preference = fakes.first) -> Answer:
    """Return the response of a plugin without faults."""
    if isinstance(wanted, PreferenceWanted):
        return preference(wanted.available, wanted.must_include, wanted.size)
    return AllocateAnswer((b"",))


@attrs.define
class Counted:
    """A ``subscribe`` function that counts its calls and the subscriptions that are still open."""

    subscribe: Callable[..., Callable[[], None]]
    calls: int = 0
    open: int = 0

    def __call__(self, *arguments: Any) -> Callable[[], None]:
        end = self.subscribe(*arguments)
        self.calls += 1
        self.open += 1

        def counted() -> None:
            self.open -= 1
            end()

        return counted


class World:
    """Endpoints, ledger and hint providers: all state that an admission reads.

    Every resource of ``lists`` has one plugin. It offers GetPreferredAllocation if ``preferred``
    is True.
    """

    def __init__(
        self,
        lists: Mapping[str, Iterable[Device]],
        *,
        policy: str = "none",
        scope: str = "container",
        nodes: Iterable[int] = (0, 1),
        preferred: bool = True,
    ) -> None:
        self.endpoints = Endpoints()
        self.ledger = Ledger()
        self.hints = DeviceHintProvider(configure(NumaTopology.of(list(nodes)), policy, scope, {}))
        self.plugins: dict[ResourceName, EndpointId] = {}
        self.open: list[PodAllocation] = []
        options = PluginOptions(get_preferred_allocation_available=preferred)
        for name, rows in lists.items():
            resource = ResourceName(name)
            endpoint, _ = self.endpoints.connect(resource, "plugin", options)
            self.plugins[resource] = endpoint.id
            self.list(resource, rows)

    def list(self, resource: ResourceName, rows: Iterable[Device]) -> None:
        before = self.endpoints.devices(resource) or EMPTY
        self.endpoints.update(self.plugins[resource], device_list(rows, before))

    def leave(self, resource: ResourceName) -> None:
        self.endpoints.disconnect(self.plugins[resource], now=0.0)

    def begin(
        self, pod: Pod, context: AdmissionContext | None = None, rules: Rules | None = None
    ) -> tuple[PodAllocation, AllocationSteps]:
        allocation = PodAllocation(
            pod,
            self.endpoints,
            self.ledger,
            context or AdmissionContext(),
            rules=rules or Rules(),
        )
        self.open.append(allocation)
        return allocation, admit_pod(allocation, self.hints)

    def admit(
        self,
        pod: Pod,
        answers: Callable[[Wanted], Answer] = answer,
        context: AdmissionContext | None = None,
        rules: Rules | None = None,
    ) -> PodAllocation:
        """Run an admission and commit it. Raises Rejected.

        An exception that ``answers`` raises is the error of that RPC.
        """
        allocation, steps = self.begin(pod, context, rules)
        try:
            self._run(steps, answers)
        finally:
            self.open.remove(allocation)
        self.ledger.commit(allocation.draft)
        return allocation

    @staticmethod
    def _run(steps: AllocationSteps, answers: Callable[[Wanted], Answer]) -> None:
        try:
            wanted = next(steps)
            while True:
                try:
                    response = answers(wanted)
                except Exception as error:
                    # As in the device manager, the generator handles failed RPCs.
                    wanted = steps.throw(error)
                else:
                    wanted = steps.send(response)
        except StopIteration:
            return

    def held(self, uid: str) -> dict[str, dict[str, list[str]]]:
        return held_by(self.ledger, uid)

    def check(self) -> None:
        """Check the invariants: indexes are correct, and no device is allocated to two pods."""
        drafts = [allocation.draft for allocation in self.open]
        self.ledger.self_check(drafts)
        shared = {key: pods for key, pods in holders(self.ledger, drafts).items() if len(pods) > 1}
        assert shared == {}


def growth_of_memory(act: Callable[[], object]) -> int:
    """Return the bytes that Python has allocated and not freed in 500 calls of ``act``."""

    def after(calls: int) -> int:
        for _ in range(calls):
            act()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    act()  # fills caches
    gc.collect()
    tracemalloc.start()
    try:
        before = after(50)
        return after(500) - before
    finally:
        tracemalloc.stop()


def check_lazy_names(package: ModuleType) -> None:
    """Check that every name of a package, and of each package below it, can be loaded at its first
    use.

    A second copy of each package is executed: the first can have loaded its names already.
    """
    below = walk_packages(package.__path__, f"{package.__name__}.")
    packages = [package, *(import_module(each.name) for each in below if each.ispkg)]
    lazy = [each for each in packages if "__getattr__" in vars(each)]
    assert package in lazy
    for each in lazy:
        _check_lazy_names(each)


def _check_lazy_names(package: ModuleType) -> None:
    spec = package.__spec__
    assert spec is not None and spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    for name in copy.__all__:
        value = getattr(copy, name)
        assert getattr(package, name) is value
    assert set(copy.__all__) <= set(copy.__dir__())
    with pytest.raises(AttributeError) as raised:
        _ = copy.Nothing
    assert str(raised.value) == f"module {package.__name__!r} has no attribute 'Nothing'"


def _modules_of(package: ModuleType) -> list[ModuleType]:
    below = walk_packages(package.__path__, f"{package.__name__}.")
    return [import_module(each.name) for each in below if not each.name.endswith(".__main__")]


def own_defaults(package: ModuleType) -> dict[str, object]:
    """Return the defaults of the package's classes of attrs and msgspec that are numbers, texts,
    words or True.

    The result has them by class and field. It omits empty defaults: None, False, 0, empty texts
    and empty collections.
    """
    found: dict[str, object] = {}
    for module in _modules_of(package):
        for kind in vars(module).values():
            if not (isinstance(kind, type) and kind.__module__ == module.__name__):
                continue
            fields = attrs.fields(kind) if attrs.has(kind) else ()
            if issubclass(kind, msgspec.Struct):
                fields = msgspec.structs.fields(kind)
            for field in fields:
                is_own = not getattr(field, "inherited", False)
                if not is_own or not isinstance(field.default, (int, float, str)):
                    continue
                name = f"{kind.__name__}.{field.name}"
                # Classes of the same name must agree, so that each default is compared.
                assert found.setdefault(name, field.default) == field.default, name
    return {name: default for name, default in found.items() if default}


def own_words(package: ModuleType) -> dict[str, str]:
    """Return the words of the package's enums that are not the member's name in lower case, with
    hyphens; by enum and member.

    These words are part of the API: of JSON, of flags and of files.
    """
    enums = [
        enum
        for module in _modules_of(package)
        for enum in vars(module).values()
        if isinstance(enum, type)
        and issubclass(enum, StrEnum)
        and enum.__module__ == module.__name__
    ]
    assert enums, f"{package.__name__} has no enums"
    return {
        f"{enum.__name__}.{member.name}": member.value
        for enum in enums
        for member in enum
        if member.value != member.name.lower().replace("_", "-")
    }
