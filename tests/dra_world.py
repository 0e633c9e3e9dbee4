"""A world without sockets for tests of the DRA manager's generators."""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.effects import (
    Answer,
    AwaitClaims,
    CallDriver,
    Effect,
    FetchClaim,
    Operation,
    Steps,
)
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.core.dra.model import (
    AllocationResult,
    ContainerClaim,
    ContainerClaims,
    PodClaim,
    PodClaims,
    PreparedDevice,
    PrepareResult,
    ResourceClaim,
    UnprepareResult,
)
from devicemanager.core.dra.prepare import prepare
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.dra.unprepare import unprepare
from devicemanager.core.versions.behaviour import resolve
from devicemanager.core.versions.version import KubeletVersion

GPU = "gpu.example.com"
NIC = "nic.example.com"


def rules(version: str = "1.37", *quirks: str, **gates: bool) -> DraRules:
    return DraRules(resolve(KubeletVersion.parse(version), gates), frozenset(quirks))


def pod(name: str = "p", *claims: str) -> PodClaims:
    """Return a pod whose container ``main`` uses all of its claims."""
    names = claims or ("c1",)
    return PodClaims(
        f"{name}-uid",
        name,
        "default",
        tuple(PodClaim(f"x{number}", each) for number, each in enumerate(names)),
        containers=(
            ContainerClaims("main", tuple(ContainerClaim(f"x{n}") for n in range(len(names)))),
        ),
    )


def claim(name: str = "c1", *drivers: str, reserved: tuple[str, ...] = ("p-uid",)) -> ResourceClaim:
    """Return an allocated claim with one device of each driver."""
    results = tuple(AllocationResult(each, "r", "pool", "dev") for each in drivers or (GPU,))
    return ResourceClaim("default", name, f"{name}-uid", results, reserved)


class World:
    """Claims of the API server, drivers and the state file; runs the generators."""

    def __init__(self, rules: DraRules, *drivers: str) -> None:
        self.rules = rules
        self.claims: dict[str, ResourceClaim] = {}
        self.cache = ClaimCache()
        self.drivers = Drivers(rules)
        self.effects: list[Effect] = []
        self.failures: list[tuple[Callable[[Effect], bool], Exception]] = []
        """Errors to throw, once each, at the first effect for which the function is true."""
        for driver in drivers or (GPU,):
            instance = self.drivers.register(driver, f"/{driver}.sock", _SERVICES, 0.0)
            self.drivers.set_connected(instance.id, True, 0.0)

    def add(self, *claims: ResourceClaim) -> None:
        self.claims.update({each.name: each for each in claims})

    def calls(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return driver, operation and claim names of each call so far."""
        return [
            (each.driver, each.operation.value, tuple(ref.name for ref in each.claims))
            for each in self.effects
            if isinstance(each, CallDriver)
        ]

    def prepare(self, pod: PodClaims) -> None:
        self.run(prepare(pod, self.cache, self.drivers, self.rules))

    def unprepare(self, pod: PodClaims) -> None:
        self.run(unprepare(pod, self.cache, self.drivers, self.rules))

    def run(self, steps: Steps) -> None:
        run = Run(self, steps)
        while run.effect is not None:
            run.step()

    def fail(self, error: Exception, when: Callable[[Effect], bool]) -> None:
        self.failures.append((when, error))

    def answer(self, effect: Effect) -> Answer:
        """Return the answer to an effect, or raise the error to throw."""
        for each in self.failures:
            if each[0](effect):
                self.failures.remove(each)
                raise each[1]
        if isinstance(effect, FetchClaim):
            if effect.name not in self.claims:
                raise ClaimFetchError.not_found(effect.name)
            return self.claims[effect.name]
        if isinstance(effect, CallDriver):
            if effect.operation is Operation.UNPREPARE:
                return {ref.uid: UnprepareResult() for ref in effect.claims}
            return {
                ref.uid: PrepareResult(
                    (
                        PreparedDevice(
                            "pool", "dev", None, ("r",), (f"{effect.driver}/d={ref.name}",)
                        ),
                    )
                )
                for ref in effect.claims
            }
        return None


class Run:
    """A generator that is taken from effect to effect."""

    def __init__(self, world: World, steps: Steps) -> None:
        self.world = world
        self.steps = steps
        self.effect: Effect | None = None
        self._advance(lambda: next(steps))

    def step(self) -> None:
        """Answer the current effect."""
        effect = self.effect
        assert effect is not None
        assert not isinstance(effect, AwaitClaims), "no other pod runs"
        try:
            answer = self.world.answer(effect)
        except Exception as error:
            thrown = error
            self._advance(lambda: self.steps.throw(thrown))
        else:
            self._advance(lambda: self.steps.send(answer))

    def until(self, kind: type[object]) -> None:
        """Answer effects until the next one is of a kind."""
        while not isinstance(self.effect, kind):
            self.step()

    def finish(self) -> None:
        """Answer all effects."""
        while self.effect is not None:
            self.step()

    def resume(self) -> None:
        """Answer AwaitClaims once no other pod prepares its claims."""
        assert isinstance(self.effect, AwaitClaims)
        assert not any(map(self.world.cache.is_preparing, self.effect.claims))
        self._advance(lambda: self.steps.send(None))

    def _advance(self, step: Callable[[], Effect]) -> None:
        try:
            self.effect = step()
        except StopIteration:
            self.effect = None
        else:
            self.world.effects.append(self.effect)


_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
