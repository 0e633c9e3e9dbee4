"""Intended differences from the kubelet's DRA manager. A comparison accepts no others.

Each deviation defines which value of the mock is accepted for which value of the reference.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import checkpoint
import checkpoint.dra
from devicemanager.core.versions.quirks import QUIRKS
from devicemanager.core.versions.version import KubeletVersion
from tools.differential.deviations import Deviation, Fact
from tools.differential.versions import minor


def _is_another_order(fact: Fact) -> bool:
    """True if the mock has the same items in another order, and the reference's order is random.

    An error ends the calls. Therefore another order leads to calls of other instances. The calls of
    each instance are separate facts.
    """
    if not fact.is_random or not fact.path.startswith("order "):
        return False
    return fact.path == "order of calls" or any(
        _items(value) == _items(fact.actual) for value in fact.expected
    )


def _has_another_driver_first(fact: Fact) -> bool:
    """True if the mock's claims, and its number of devices of each driver, occur in runs of the
    reference, but not together in one run.

    The driver that fails ends the calls. In the kubelet, only the drivers that come before it in a
    rotation have prepared the claim.
    """
    if not fact.is_random or fact.path != "claims" or not isinstance(fact.actual, list):
        return False
    if _holders(fact.actual) not in map(_holders, fact.expected):
        return False
    # A claim that no driver has prepared may be missing.
    seen = [_numbers(value) if isinstance(value, list) else {} for value in fact.expected]
    return all(
        number in [numbers.get(key, 0) for numbers in seen]
        for key, number in _numbers(fact.actual).items()
    )


def _numbers(claims: list[Any]) -> dict[tuple[str, str], int]:
    """Return the numbers of devices in a file, by claim (as text) and driver."""
    return {
        (json.dumps(claim), driver): number
        for *claim, numbers in claims
        for driver, number in numbers.items()
    }


def _items(value: Any) -> list[str]:
    return sorted(_flat(value))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield json.dumps(value)


def _has_other_repeats(fact: Fact) -> bool:
    """True if the mock has each device at most as often, or at least as often, as every run of the
    reference.

    With Q35, each retry adds the devices of the drivers that are called before a failing one. In
    the kubelet, the order of a Go map decides at each retry which drivers these are. In the mock,
    the order is the same at each retry. So a device is repeated never or at each retry, which few
    runs of the reference show.
    """
    if not fact.is_random or fact.path not in _REPEATED or not _has_q35(fact.version):
        return False
    if not isinstance(fact.actual, list):
        return False
    if fact.path == "claims" and _holders(fact.actual) not in map(_holders, fact.expected):
        return False
    ours = Counter(_devices(fact.actual))
    seen = [Counter(_devices(value)) for value in fact.expected]
    attempts = _attempts(fact)
    for device in ours.keys() | {each for counts in seen for each in counts}:
        numbers = [counts[device] for counts in seen]
        in_one_answer = min((number for number in numbers if number), default=0)
        if min(numbers) < ours[device] < max(numbers):
            return False
        if ours[device] > attempts * in_one_answer:
            return False
    return True


_REPEATED: Final = ("cdi", "order of cdi", "claims", "dynamic resources")


def _has_q35(version: str) -> bool:
    return QUIRKS["Q35"].is_in(KubeletVersion.parse(version))


def _holders(claims: Any) -> Any:
    """Return the claims of a file with their pods, without their devices."""
    return [claim[:3] for claim in claims] if isinstance(claims, list) else None


def _devices(value: Any) -> Iterator[str]:
    """Yield each CDI ID, or each device with its claim. ``value`` is a list of devices, or the
    claims of a file."""
    for each in value if isinstance(value, list) else ():
        match each:
            case {"claim_namespace": namespace, "claim_name": name, "claim_resources": devices}:
                yield from (json.dumps([namespace, name, device]) for device in devices)
            case [*claim, dict(numbers)]:
                yield from (
                    json.dumps([*claim, driver])
                    for driver, number in numbers.items()
                    for _ in range(number)
                )
            case _:
                yield each


def _attempts(fact: Fact) -> int:
    """Return how often a pod may have been prepared up to this step."""
    steps = fact.scenario["ops"][: fact.step + 1]
    return sum("prepare" in (op["op"], op.get("do", {}).get("op")) for op in steps)


def _is_panic_of_pod_resources(fact: Fact) -> bool:
    """True if the mock lists no claim where the reference panics: at a claim that the pod does not
    need."""
    return (
        fact.path == "panic"
        and minor(fact.version) < 34
        and str(fact.expected).endswith("nil pointer dereference")
        and fact.actual is None
        and fact.scenario["ops"][fact.step]["op"] == "pod_resources"
    )


def _is_panic_of_lost_driver(fact: Fact) -> bool:
    """True if the mock prepares a claim where the reference panics.

    The kubelet panics if an earlier allocation of the claim had a driver that the new one lacks, or
    that the new one does not need to call.
    """
    if minor(fact.version) < 34 or fact.path != "panic" or fact.actual is not None:
        return False
    if not str(fact.expected).endswith("nil pointer dereference"):
        return False
    known: dict[tuple[str, str], set[str]] = {}
    allocated: dict[tuple[str, str], set[str]] = {}
    for op in fact.scenario["ops"][: fact.step + 1]:
        if (claim := op.get("claim")) is not None:
            key = claim["namespace"], claim["name"]
            results = claim.get("results") or ()
            known.setdefault(key, set()).update(result["driver"] for result in results)
            allocated[key] = {
                result["driver"]
                for result in results
                if not {"NodePrepareResources", "*"} & {*result.get("skip", ())}
            }
        elif op["op"] == "file":
            for key, drivers in _drivers_of_file(op["file"]):
                known.setdefault(key, set()).update(drivers)
    is_prepare = op["op"] == "prepare" or op.get("do", {}).get("op") == "prepare"
    return is_prepare and any(known[key] - drivers for key, drivers in allocated.items())


def _drivers_of_file(text: str | None) -> Iterator[tuple[tuple[str, str], set[str]]]:
    try:
        state = checkpoint.dra.loads((text or "").encode())
    except checkpoint.CheckpointError:
        return
    for claim in state.claims or ():
        yield (claim.namespace, claim.name), set(claim.drivers)


DEVIATIONS: Final[tuple[Deviation, ...]] = (
    Deviation(
        "panic of PodResources",
        "before v1.34, a List call ends the kubelet if a container uses a claim that the pod's "
        "status says is not needed; ours lists no such claim",
        _is_panic_of_pod_resources,
    ),
    Deviation(
        "panic of a lost driver",
        "since v1.34, the kubelet panics if it prepares a claim whose earlier allocation, in its "
        "state file or its memory, has a driver that the new one lacks; ours calls the drivers of "
        "the new allocation",
        _is_panic_of_lost_driver,
    ),
    Deviation(
        "order of a Go map",
        "ours is sorted; the kubelet goes through Go maps, and from a small one Go gives only the "
        "rotations of one order",
        lambda fact: _is_another_order(fact) or _has_another_driver_first(fact),
    ),
    Deviation(
        "devices of retries",
        "before v1.37, a retry adds the devices of the drivers that are called before a failing "
        "one; in the kubelet, the order of a Go map decides at each retry which drivers these are",
        _has_other_repeats,
    ),
)
