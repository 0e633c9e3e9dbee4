"""Count what scenarios reach: operations, and the kubelet's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from devicemanager.core.dra import messages
from devicemanager.core.versions.behaviour import resolve
from devicemanager.core.versions.version import KubeletVersion

Plain = Mapping[str, Any]

_OPS: Final = (
    "start", "register", "deregister", "stop", "listen", "behave", "claim", "delete_claim",
    "api_error", "disk", "prepare", "unprepare", "container", "pod_resources",
    "might_need_unprepare", "reconcile", "restart", "file", "advance", "begin", "end",
)  # fmt: skip
_HEALTH_OPS: Final = ("health", "status", "sleep", "end_stream")
_FIELDS: Final = ("blocked_in", "cdi", "dynamic_resources", "updates", "status", "wipes")


def reached(scenario: Plain, answer: Plain) -> frozenset[str]:
    """Return the names of everything that the reference reaches in any run."""
    return frozenset(_reached(scenario, answer))


def _reached(scenario: Plain, answer: Plain) -> Iterator[str]:
    yield from (f"op: {op['op']}" for op in scenario["ops"])
    for run in answer.get("runs") or ():
        for step in run["steps"] or ():
            yield from (f"field: {name}" for name in _FIELDS if step.get(name))
            yield from (f"text: {name}" for name in _texts(step.get("error") or ""))


def _texts(error: str) -> Iterator[str]:
    for name, pattern in _PATTERNS.items():
        if pattern.search(error):
            yield name


def listed(version: str) -> tuple[str, ...]:
    """Return everything that a long run of a version must reach."""
    kubelet = KubeletVersion.parse(version)
    behaviour = resolve(kubelet)
    ops = [*_OPS, *(_HEALTH_OPS if kubelet.minor >= 36 else ())]
    fields = [each for each in _FIELDS if kubelet.minor >= 36 or each not in ("updates", "status")]
    texts = {name for name in _PATTERNS if name.startswith(behaviour.dra_wording.value)}
    if kubelet.minor < 34:
        texts = {name for name in texts if not name.endswith("no_info_extended")}
    return (
        *(f"op: {each}" for each in ops),
        *(f"field: {each}" for each in fields),
        *(f"text: {each}" for each in sorted(texts)),
    )


def table(counts: Mapping[str, int], scenarios: int, version: str) -> Iterator[str]:
    """Yield a line for each name: the number of scenarios that reach it."""
    for name in listed(version):
        yield f"  {counts.get(name, 0):6}  {name}"
    yield f"  {scenarios:6}  scenarios"


def missing(counts: Mapping[str, int], version: str) -> list[str]:
    """Return the required names that no scenario has reached."""
    return [name for name in listed(version) if not counts.get(name)]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join(_piece(part) for part in re.split(r"(\{\w+\})", text)))


def _piece(part: str) -> str:
    return ".*" if part.startswith("{") else re.escape(part)


_PATTERNS: Final = {
    f"{wording.value} {name}": _pattern(text)
    for wording, texts in messages.WORDINGS.items()
    for name, text in attrs.asdict(texts).items()
    if text != "{error}"
}
