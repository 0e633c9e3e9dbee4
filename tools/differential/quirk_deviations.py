"""Accepted differences between the reference and the mock with its default quirks.

Each rule belongs to a quirk of docs/kubelet-behaviour.md, and defines the value that the mock must
have. After some differences, the two nodes are in different states, for example because a device is
free in only one of them. The rule for such a difference has ``parts`` set, and later steps are not
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from tools.differential.scenarios import Scenario, kind_of, steps_of

Facts = Mapping[str, Any]
_ABSENT: Final = "(absent)"


@attrs.frozen
class Step:
    """A step with different results: its facts on both sides, and the facts of earlier steps."""

    scenario: Scenario
    number: int
    reference: Sequence[Facts]
    """Facts of the reference up to this step."""
    ours: Sequence[Facts]

    @property
    def kind(self) -> str:
        """Kind of the step, such as ``admit``."""
        return kind_of(self.step)

    @property
    def step(self) -> Mapping[str, Any]:
        """The step as in the scenario."""
        return steps_of(self.scenario)[self.number]

    @property
    def resource(self) -> str:
        """Resource of the plugin that the step changes; empty if it changes none."""
        described = self.step[self.kind]
        if isinstance(described, Mapping):
            return str(described.get("resource", ""))
        return str(described) if self.kind in ("stop", "stop_old", "unwatch") else ""

    def last(self, facts: Sequence[Facts], path: str) -> Any:
        """Return the value of a fact in the latest earlier step that has the fact."""
        values = (each[path] for each in reversed(facts[:-1]) if path in each)
        return next(values, _ABSENT)


@attrs.frozen
class Rule:
    """A quirk, the facts that it affects, and a check of the mock's value."""

    name: str
    reason: str
    allows: Callable[[Step, str, Any, Any], bool]
    """Function that returns True if the mock may have a value (its last argument)."""
    parts: bool = False


# -- Q29, Q10: the file is written when its contents change -------------------------------


def _is_same_file(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if the reference writes after a list, and the mock does not write unchanged contents."""
    if "written" not in step.ours[-1] or step.ours[-1]["written"]:
        return False
    if step.kind not in ("list", "list_old", "register", "watch", "restart", "admit"):
        return False
    if path == "written":
        return wanted is True and ours is False
    if not path.startswith("checkpoint ") or ours != _ABSENT:
        return False
    before = step.last(step.ours, path)
    return before in (wanted, _ABSENT) or path.startswith("checkpoint text")


def _is_extra_write(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if the mock writes because a plugin or pod ended. The file then has current
    allocations."""
    if not step.ours[-1].get("written") or step.reference[-1].get("written"):
        return False
    if path == "written":
        return wanted is False
    if not path.startswith("checkpoint ") or wanted != _ABSENT:
        return False
    facts, words = step.ours[-1], path.split(" ")
    if words[1] == "registered" and len(words) == 3:
        return bool(len(ours) == facts.get(f"allocatable {words[2]}", 0))
    if words[1] == "entry" and words[-1] == "devices":
        ids = sorted({each for ids in ours.values() for each in ids})
        return bool(facts.get(f"devices {' '.join(words[2:-1])}", ids) == ids)
    if words[1] == "entries":
        return all(f"devices {each}" in facts or _from_file(step, each) for each in ours)
    return path != "checkpoint written by ours from what it reads" or ours is True


def _from_file(step: Step, entry: str) -> bool:
    known = step.scenario.get("active_pods") or ()
    return entry.split(" ")[0] in known


# -- Q9, Q8, Q32: health -------------------------------------------------------------------


def _is_present_health(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if, in the mock, a device is Unknown because it is no longer listed, or Unhealthy
    because it has no plugin."""
    if not path.startswith("status ") or _ABSENT in (wanted, ours) or wanted.keys() != ours.keys():
        return False
    resource = path.split(" ")[3]
    facts = step.reference[-1]
    for id_, health in ours.items():
        if health == wanted[id_]:
            continue
        is_away = not facts.get(f"allocatable {resource}")
        # After the grace period, the resource is unknown.
        is_known = f"capacity {resource}" in facts
        is_listed = is_known and id_ in _latest_list(step, resource)
        expected = "Unknown" if not is_listed else "Unhealthy" if is_away else wanted[id_]
        if health != expected:
            return False
    return True


def _latest_list(step: Step, resource: str) -> set[str]:
    """Return the device IDs in the latest list for a resource since the kubelet started."""
    made = (step.scenario.get("resources") or {}).get(resource) or {}
    devices = made.get("devices") or ()
    for each in steps_of(step.scenario)[: step.number + 1]:
        if kind_of(each) == "restart":
            devices = ()
        for described in _sent(each):
            if described.get("resource") == resource and described.get("devices") is not None:
                devices = described["devices"]
    return {device["id"] for device in devices}


def _sent(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    described = step[kind_of(step)]
    if isinstance(described, Mapping):
        yield described
        yield from described.get("before") or ()


def _is_more_reported(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if the mock also reports pods whose devices vanish or lose their plugin.

    It also reports all pods with a device, not only one of them.
    """
    if path != "health updates" or wanted == _ABSENT:
        return False
    having = {
        each.split(" ")[1]
        for facts in (step.ours[-1], *step.ours[-2:-1], *step.reference[-2:])
        for each in facts
        if each.startswith("devices ")
    }
    having.update(step.scenario.get("active_pods") or ())
    more, fewer = set(ours) - set(wanted), set(wanted) - set(ours)
    # It may report fewer pods only where the reference compares IDs without the resource (Q8).
    return having.issuperset(more) and (not fewer or step.kind != "stop")


# -- Q10, Q31: devices of pods that ended or were rejected ------------------------------------


def _is_freed(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    words = path.split(" ")
    if words[0] not in ("devices", "count", "status") or ours != _ABSENT or len(words) < 4:
        return False
    return words[1] in _ended(step) | _rejected(step)


def _ended(step: Step) -> set[str]:
    ended = {
        each[kind_of(each)]
        for each in steps_of(step.scenario)[: step.number + 1]
        if kind_of(each) in ("finish", "delete", "exit", "retire")
    }
    # Pods in the checkpoint that neither side knows.
    known = step.scenario.get("active_pods") or ()
    return ended | ({"old-pod"} - set(known))


def _is_without_ended(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if only the mock's file lacks the entries of ended and rejected pods."""
    if not (step.ours[-1].get("written") and path.startswith("checkpoint ")):
        return False
    gone = _ended(step) | _rejected(step)
    words = path.split(" ")
    if words[1] == "entries" and _ABSENT not in (wanted, ours):
        return set(ours) == {each for each in wanted if each.split(" ")[0] not in gone}
    if words[1] == "entry":
        return words[2] in gone and ours == _ABSENT
    return words[1] == "text" and any(f'"PodUID":"{uid}"' in str(wanted) for uid in gone)


def _rejected(step: Step) -> set[str]:
    found = set()
    steps = steps_of(step.scenario)
    for each, facts in zip(steps, step.reference, strict=False):
        if kind_of(each) == "admit" and facts.get("admit") is False:
            found.add(each["admit"]["uid"])
        if facts.get("meanwhile admit") is False:
            found.add(each["admit"]["meanwhile"]["uid"])
        for path, value in facts.items():
            if path.startswith("readmitted ") and path.endswith(" admit") and value is False:
                found.add(path.split(" ")[1])
    return found


def _is_written_for_a_rejected_pod(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if the reference writes the devices of a rejected pod, and the mock writes nothing."""
    is_checkpoint = path == "written" or path.startswith("checkpoint ")
    return is_checkpoint and _has_rejected(step) and step.reference[-1].get("written") is True


def _has_rejected(step: Step) -> bool:
    facts = step.reference[-1]
    return any(path.endswith("admit") and value is False for path, value in facts.items())


# -- Q1, Q24: replaced plugins ------------------------------------------------------------------


def _is_ignored(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if a list or the end of a replaced plugin has no effect in the mock."""
    if step.kind not in ("list_old", "stop_old"):
        return False
    words = path.split(" ")
    if words[0] in ("capacity", "allocatable"):
        return words[1] == step.resource and ours == step.last(step.ours, path)
    if words[0] == "allocatable:":
        return words[1] == step.resource
    if words[0] in ("status", "health") or path == "written":
        return True
    return words[0] == "checkpoint" and ours == _ABSENT


# -- rejections that the mock does not make ------------------------------------------------------


def _is_admitted(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if the mock admits a pod that the reference rejects because of a bug.

    The bugs are: the kubelet counts a limit of 0 (Q5) or a finished init container (Q16), or does
    not free devices (Q4).
    """
    message = next(
        (
            str(value)
            for each, value in step.reference[-1].items()
            if each.endswith("message") and value
        ),
        "",
    )
    # All facts of the step follow from the different decision.
    return _has_rejected(step) and (
        "no healthy devices present" in message
        or "no longer healthy" in message
        or "requested number of devices unavailable" in message
        or "cannot allocate unregistered device" in message
    )


def _is_more_available(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if devices of pods that only the checkpoint contains are free in the mock."""
    if path != "calls" or step.scenario.get("checkpoint") is None or not (wanted and ours):
        return False
    before, after = (set(calls[0].get("available") or ()) for calls in (wanted, ours))
    return before < after


def _is_fresh(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if a pod with the UID of an ended pod is new in the mock.

    The reference gives it the devices of the ended pod.
    """
    if step.kind != "admit":
        return False
    before = attrs.evolve(step, number=step.number - 1, reference=step.reference[:-1])
    return step.step["admit"]["uid"] in _ended(before) | _rejected(before)


def _is_topology_less(step: Step, path: str, wanted: Any, ours: Any) -> bool:
    """True if a device whose topology has no NUMA nodes is allocatable in the mock (Q13)."""
    if not path.startswith("allocatable: ") or ours == _ABSENT:
        return False
    more = [each for each in ours if each not in (() if wanted == _ABSENT else wanted)]
    return bool(more) and all(nodes is None for _, nodes in more)


RULES: Final = (
    Rule("Q29 no write", "the checkpoint is written when its contents change", _is_same_file),
    Rule("Q29 write", "the checkpoint is written when a plugin or a pod ends", _is_extra_write),
    Rule("Q9", "a device without a plugin, or without a list, is not healthy", _is_present_health),
    Rule("Q8, Q9, Q32", "more or other pods are reported", _is_more_reported),
    Rule("Q13", "a device without NUMA nodes is allocatable", _is_topology_less),
    Rule("Q10", "the checkpoint has no pods that ended", _is_without_ended),
    Rule("Q10, Q31", "devices of ended and rejected pods are free", _is_freed, parts=True),
    Rule("Q1, Q24", "replaced plugins have no effect", _is_ignored, parts=True),
    Rule("Q31", "a rejected pod is not written", _is_written_for_a_rejected_pod, parts=True),
    Rule("Q10 file", "devices of unknown pods are free", _is_more_available, parts=True),
    Rule("Q10 UID", "a pod with the UID of an ended one gets devices", _is_fresh, parts=True),
    Rule("Q4, Q5, Q16", "a pod is admitted that a bug rejects", _is_admitted, parts=True),
)
