"""In-place resize: what it changes, its conditions, and the containers that must restart."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.pods import Container
from devicemanager.core.podstatus.conditions import Condition, ResizeCondition
from devicemanager.core.podstatus.resize import (
    DEFERRED,
    PendingResize,
    Resize,
    ResizeInProgress,
    changed_resources,
    resized,
    to_restart,
)
from tests.helpers import pod


def sized(name: str, limits: dict[str, int], requests: dict[str, int], *restarts: str) -> Container:
    return Container(name, limits, requests, restarts_on_resize=restarts)


SMALL = sized("app", {"cpu": 1, "memory": 10, "a/gpu": 1}, {"cpu": 1, "memory": 5, "a/gpu": 1})
SIDE = sized("side", {}, {"cpu": 3})


def test_conditions_report_pending_and_started_resizes():
    pending = PendingResize(pod("a"), DEFERRED, "no room", 4, 12.0)
    started = ResizeInProgress(pod("a"), 3, 10.0)
    waits = Condition(ResizeCondition.PENDING, True, "Deferred", "no room", 12.0, 4)
    runs = Condition(ResizeCondition.IN_PROGRESS, True, since=10.0, generation=3)
    assert list(Resize().conditions()) == []
    assert list(Resize(pending).conditions()) == [waits]
    assert list(Resize(in_progress=started).conditions()) == [runs]
    assert list(Resize(pending, started).conditions()) == [waits, runs]


@pytest.mark.parametrize(
    ("newer", "limits", "requests"),
    [
        (sized("app", {"cpu": 2}, {"cpu": 2}), {"cpu": 2, "a/gpu": 1}, {"cpu": 2, "a/gpu": 1}),
        (sized("app", {}, {"memory": 6}), {"a/gpu": 1}, {"memory": 6, "a/gpu": 1}),
        (
            sized("app", {"cpu": 1, "memory": 11, "b/gpu": 2}, {"cpu": 1, "memory": 5}),
            {"cpu": 1, "memory": 11, "a/gpu": 1},
            dict(SMALL.requests),
        ),
        (
            sized("app", {"cpu": 1, "memory": 10}, {"cpu": 1, "memory": 4, "a/gpu": 9}),
            dict(SMALL.limits),
            {"cpu": 1, "memory": 4, "a/gpu": 1},
        ),
    ],
)
def test_resize_changes_only_cpu_and_memory(newer, limits, requests):
    before = pod("a", SMALL, SIDE)
    after = resized(before, pod("a", newer, SIDE))
    assert after.containers == (attrs.evolve(SMALL, limits=limits, requests=requests), SIDE)
    assert after.containers[1] is SIDE
    assert after.init_containers == ()
    # An init container is resized in the same way.
    after = resized(pod("a", SIDE, init=[SMALL]), pod("a", SIDE, init=[newer]))
    assert after.init_containers == (attrs.evolve(SMALL, limits=limits, requests=requests),)
    assert after.containers == (SIDE,)


@pytest.mark.parametrize(
    "wanted",
    [
        pod("a", SMALL),
        pod("a", attrs.evolve(SMALL, limits={**SMALL.limits, "a/gpu": 5})),
        pod("a", SIDE),
        attrs.evolve(pod("a", SMALL), name="other"),
    ],
)
def test_resize_that_changes_nothing_returns_the_same_pod(wanted):
    before = pod("a", SMALL)
    assert resized(before, wanted) is before


@pytest.mark.parametrize(
    ("limits", "requests", "changed"),
    [
        ({}, {}, set()),
        ({"cpu": 2}, {}, {"cpu"}),
        ({}, {"cpu": 2}, {"cpu"}),
        ({"memory": 2}, {}, {"memory"}),
        ({}, {"memory": 2}, {"memory"}),
        ({"cpu": 2}, {"memory": 2}, {"cpu", "memory"}),
        ({"a/gpu": 2}, {"a/gpu": 2}, set()),
    ],
)
def test_changed_resources(limits, requests, changed):
    newer = attrs.evolve(
        SMALL, limits={**SMALL.limits, **limits}, requests={**SMALL.requests, **requests}
    )
    assert changed_resources(SMALL, newer) == changed
    assert changed_resources(newer, SMALL) == changed


def test_resize_policy_selects_the_containers_to_restart():
    def both(cpu: int, memory: int) -> list[Container]:
        amounts = {"cpu": cpu, "memory": memory}
        return [
            sized("any", amounts, {}, "cpu", "memory"),
            sized("cpu", amounts, {}, "cpu"),
            sized("memory", amounts, {}, "memory"),
            sized("none", amounts, {}),
        ]

    init, before = sized("init", {"cpu": 1}, {}, "cpu"), both(1, 1)

    def restarted(cpu: int, memory: int) -> list[str]:
        newer = sized("init", {"cpu": cpu}, {}, "cpu")
        return to_restart(
            pod("a", *before, init=[init]), pod("a", *both(cpu, memory), init=[newer])
        )

    assert restarted(1, 1) == []
    assert restarted(1, 2) == ["any", "memory"]
    assert restarted(2, 1) == ["init", "any", "cpu"]
    assert restarted(2, 2) == ["init", "any", "cpu", "memory"]
