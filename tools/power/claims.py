"""Simulate power failures for ``dra_manager_state`` while a DRA manager prepares claims.

At every moment, the file must be readable, and must not contain a device for two claims. The levels
``process`` and ``power`` promise more:

1. Before a driver is called for a claim, the file has the claim with its pod. So a restarted
   kubelet knows every claim that a driver may have prepared.
2. When prepare has returned, the file has the claim's devices.
3. When unprepare has returned, the claim is not in the file.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from checkpoint import CheckpointError, dra
from devicemanager.core.dra.effects import Answer, CallDriver, Effect, Operation, WriteState
from devicemanager.core.versions.version import KubeletVersion
from tools.harness.model import Broken
from tools.power.disk import Files, Mark, moments
from tools.power.disk import Operation as FileOperation
from tools.power.recording import Recording, recording
from tools.replay.dra_kubelet import DraKubelet

_DRIVER: Final = "gpu.example.com"
_PODS: Final = 6


class _Kubelet(DraKubelet):
    """DRA manager that writes a real file, and records which calls have begun and ended."""

    def __init__(self, store: dra.StateStore, recorder: Recording) -> None:
        super().__init__(_scenario(), KubeletVersion.parse("1.37"))
        self._store, self._recorder = store, recorder

    def _carry_out(self, effect: Effect) -> Answer:
        if isinstance(effect, WriteState):
            self._store.write(self._document.render(effect.claims))
            return None
        if isinstance(effect, CallDriver) and effect.operation is Operation.PREPARE:
            for claim in effect.claims:
                self._recorder.mark("called", claim.name)
        return super()._carry_out(effect)

    def run(self, op: str, pod: int) -> None:
        """Prepare or unprepare the claims of a pod."""
        self._recorder.mark("begun", f"c{pod}")
        result = self.step({"op": op, "pod": f"p{pod}"})
        assert "error" not in result, result
        self._recorder.mark("prepared" if op == "prepare" else "ended", f"c{pod}")


def _scenario() -> dict[str, Any]:
    """Return pods with one claim each."""
    device = {"pool": "pool", "cdi": ["example.com/dev=x"]}
    answers = {f"c{n}-uid": {"devices": [{**device, "device": f"d{n}"}]} for n in range(_PODS)}
    instance = {"driver": _DRIVER, "services": ["v1.DRAPlugin"], "serves": ["v1"]}
    pods = {
        f"p{n}": {
            "name": f"p{n}",
            "namespace": "ns",
            "uid": f"p{n}-uid",
            "claims": [{"name": "claim", "claim": f"c{n}"}],
        }
        for n in range(_PODS)
    }
    instances = {"a": {**instance, "prepare": {"claims": answers}}}
    return {"pods": pods, "instances": instances}


def _claim(number: int) -> dict[str, Any]:
    name = f"c{number}"
    results = [{"driver": _DRIVER, "pool": "pool", "device": f"d{number}"}]
    fields = {"namespace": "ns", "name": name, "uid": f"{name}-uid", "results": results}
    return {"op": "claim", "claim": {**fields, "reserved": [f"p{number}-uid"]}}


def recorded(level: str, count: int, seed: int) -> Recording:
    """Record the file operations of ``count`` calls of prepare and unprepare."""
    choice = random.Random(f"claims-{seed}")
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as name:
        directory = Path(name)
        with recording(directory) as recorder:
            kubelet = _Kubelet(dra.StateStore(directory, durability=level), recorder)
            ops = [{"op": "start"}, {"op": "register", "instance": "a"}]
            for op in (*ops, *map(_claim, range(_PODS))):
                kubelet.step(op)
            prepared: set[int] = set()
            for _ in range(count):
                pod = choice.randrange(_PODS)
                kubelet.run("unprepare" if pod in prepared else "prepare", pod)
                prepared ^= {pod}
    return recorder


@attrs.define
class _Promised:
    """Contents that the file must and must not have, derived from the calls so far."""

    called: set[str] = attrs.field(factory=set)
    prepared: set[str] = attrs.field(factory=set)
    ended: set[str] = attrs.field(factory=set)

    def add(self, what: str, claim: str) -> None:
        """Record the state of a call: it has ``begun``, has ``called`` a driver, or has ended.

        When it has ended, the claim is ``prepared`` or ``ended``.
        """
        for each in (self.called, self.prepared, self.ended):
            each.discard(claim)
        match what:
            case "called":
                self.called.add(claim)
            case "prepared":
                self.prepared.add(claim)
            case "ended":
                self.ended.add(claim)

    def key(self) -> tuple[frozenset[str], ...]:
        return frozenset(self.called), frozenset(self.prepared), frozenset(self.ended)

    def problems(self, state: dra.State) -> Iterator[str]:
        on_disk = {claim.name: claim for claim in state.claims or ()}
        for name in sorted(self.called | self.prepared):
            claim = on_disk.get(name)
            if claim is None or not claim.pods:
                yield f"a driver was called for {name}, and the file does not have it"
            elif name in self.prepared and not claim.drivers[_DRIVER].devices:
                yield f"{name} is prepared, and the file does not have its devices"
        for name in sorted(self.ended & on_disk.keys()):
            yield f"{name} is unprepared, and the file has it"


def check(level: str, start: Mapping[str, bytes], operations: Sequence[FileOperation]) -> int:
    """Simulate a power failure at every moment, and return the number of different outcomes.

    Raises Broken for the first outcome that breaks a promise of the level.
    """
    promised = _Promised()
    checked: set[object] = set()
    for moment, disk in enumerate(moments(start, operations)):
        if moment and isinstance(mark := operations[moment - 1], Mark):
            promised.add(mark.what, mark.uid)
        for left in [disk.seen()] if level == "process" else disk.lost():
            key = (left.get(dra.STATE_NAME), promised.key())
            if key not in checked:
                checked.add(key)
                if problem := next(_broken(level, left, promised), None):
                    after = operations[moment - 1] if moment else "the start"
                    raise Broken(f"{level}: power lost after {after!r:.120}: {problem}")
    return len(checked)


def _broken(level: str, left: Files, promised: _Promised) -> Iterator[str]:
    data = left.get(dra.STATE_NAME)
    try:
        state = dra.State() if data is None else dra.loads(data)
    except CheckpointError as error:
        yield f"the state file is damaged: {error}"
        return
    yield from (each.text for each in dra.inconsistencies(state.claims))
    if level != "kubelet":
        yield from promised.problems(state)
