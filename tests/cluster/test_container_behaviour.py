"""Behaviour of containers, from defaults and annotations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.cluster.container_behaviour import ContainerBehaviour, PodBehaviour
from devicemanager.cluster.durations import Range, seconds
from devicemanager.core.responses import Responses


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", 2.0), ("0.5", 0.5), ("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0)],
)
def test_seconds_parses_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1d", "1s2", "nan", "9" * 20])
def test_seconds_rejects_other_text(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^invalid duration .*: (use a form such as 30s|use at most 10 years)"
    ):
        seconds(text)


@given(st.text(max_size=8))
def test_seconds_never_returns_a_negative_number(text: str) -> None:
    try:
        assert seconds(text) >= 0
    except ValueError as error:
        assert "\n" not in str(error)


def test_errors_truncate_long_annotations() -> None:
    long = "9" * 100_000
    notes = {"devicemanager.io/exit-code": long, "devicemanager.io/run-for": f"{long}x"}
    behaviour, errors = ContainerBehaviour().of({"uid": "u", "annotations": notes})
    assert behaviour.exit_code == 0 and len(errors) == 2
    assert all(len(each) < 200 for each in errors)


@pytest.mark.parametrize("text", ["1s±0.5", "1s±500ms", "1s+-0.5s", "1s ± 0.5s"])
def test_range_parses_duration_and_spread(text: str) -> None:
    parsed = Range.parse(text)
    assert parsed == Range(1.0, 0.5)
    assert parsed.of("a") == parsed.of("a")


@pytest.mark.parametrize("text", ["1s±", "1s+-", "1s ± "])
def test_range_without_a_spread_after_the_sign_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid duration '': "):
        Range.parse(text)


@given(st.uuids().map(str), st.floats(0, 10), st.floats(0, 10))
def test_range_stays_within_its_spread(uid: str, middle: float, spread: float) -> None:
    assert max(0.0, middle - spread) <= Range(middle, spread).of(uid) <= middle + spread + 1e-9


def test_range_differs_between_pods() -> None:
    assert len({Range(5.0, 1.0).of(str(number)) for number in range(100)}) == 100


def test_pods_of_jobs_end_and_others_do_not() -> None:
    defaults = ContainerBehaviour(run_for=None, job_duration=Range(3.0))

    def run_for(*owners: dict[str, object]) -> float | None:
        behaviour, errors = defaults.of({"uid": "u", "ownerReferences": list(owners)})
        assert errors == []
        return behaviour.run_for

    assert run_for({"kind": "Job", "controller": True}) == 3.0
    assert run_for() is None
    assert run_for({"kind": "ReplicaSet", "controller": True}) is None
    assert run_for({"kind": "Job"}) is None


def test_seconds_limits_duration_and_length() -> None:
    assert seconds("87600h") == 10 * 365 * 24 * 3600
    with pytest.raises(ValueError, match=r"^invalid duration '87600h1s': use at most 10 years$"):
        seconds("87600h1s")
    assert seconds("1s" * 30) == 30.0
    with pytest.raises(ValueError, match=rf"^invalid duration '{'1s' * 30}…': use a form"):
        seconds("1s" * 31)


def behaviour_with(**notes: str) -> tuple[PodBehaviour, list[str]]:
    """Return the behaviour of a pod with these annotations, and the errors in them."""
    annotations = {
        f"devicemanager.io/{name.replace('_', '-')}": value for name, value in notes.items()
    }
    defaults = ContainerBehaviour(start_delay=Range(1.0), run_for=Range(2.0), exit_code=3)
    return defaults.of({"uid": "u", "annotations": annotations})


def test_annotations_override_the_defaults() -> None:
    assert behaviour_with() == (PodBehaviour(1.0, 2.0, 3, False), [])
    notes = {"start_delay": "10s", "run_for": "20s", "exit_code": "0", "never_ready": "true"}
    assert behaviour_with(**notes) == (PodBehaviour(10.0, 20.0, 0, True), [])
    assert ContainerBehaviour().of({"uid": "u"}) == (PodBehaviour(0.0, None, 0, False), [])


@pytest.mark.parametrize(("text", "code"), [("0", 0), ("255", 255), ("007", 7)])
def test_exit_code_annotation_is_parsed(text: str, code: int) -> None:
    assert behaviour_with(exit_code=text) == (PodBehaviour(1.0, 2.0, code, False), [])


@pytest.mark.parametrize("text", ["256", "-1", "", "1.0", "²", "0001"])
def test_invalid_exit_code_is_ignored_with_an_error(text: str) -> None:
    error = (
        f"annotation devicemanager.io/exit-code: invalid exit code {text!r}: "
        "use a number from 0 to 255"
    )
    assert behaviour_with(exit_code=text) == (PodBehaviour(1.0, 2.0, 3, False), [error])


def test_invalid_duration_is_ignored_with_an_error() -> None:
    behaviour, errors = behaviour_with(start_delay="soon", run_for="later")
    assert behaviour == PodBehaviour(1.0, 2.0, 3, False)
    assert errors == [
        f"annotation devicemanager.io/{name}: invalid duration {text!r}: use a form such as 30s, "
        "1m30s or 500ms"
        for name, text in (("start-delay", "soon"), ("run-for", "later"))
    ]


@pytest.mark.parametrize(
    ("text", "never"), [("true", True), ("1", True), ("YES", True), ("no", False), ("", False)]
)
def test_never_ready_annotation_is_parsed(text: str, never: bool) -> None:
    assert behaviour_with(never_ready=text)[0].never_ready is never


def test_other_booleans_are_ignored_with_an_error() -> None:
    behaviour, errors = behaviour_with(never_ready="maybe", image_pull_fails="true")
    assert (behaviour.never_ready, behaviour.pull_fails) == (False, True)
    assert errors == [
        "annotation devicemanager.io/never-ready: invalid value 'maybe': use true or false"
    ]


def test_weights_choose_one_value_for_each_pod() -> None:
    def code(uid: str) -> int:
        notes = {"devicemanager.io/exit-code": "0:9 | 1:1"}
        behaviour, errors = ContainerBehaviour().of({"uid": uid, "annotations": notes})
        assert errors == []
        return behaviour.exit_code

    codes = [code(f"pod-{number}") for number in range(1000)]
    assert set(codes) == {0, 1} and 60 < sum(codes) < 140
    assert code("pod-1") == code("pod-1")


def test_responses_can_have_exit_codes_with_weights() -> None:
    behaviour, errors = behaviour_with(exec="a | b", exec_exit_code="3:1 | 0:0", port_forward="")
    assert errors == []
    assert behaviour.responses == Responses("", "a | b", 3, "")
    assert behaviour_with()[0].responses == Responses()


@pytest.mark.parametrize("text", ["1s | 2s", "1s:1 | 2s:1"])
def test_durations_can_have_weights(text: str) -> None:
    assert behaviour_with(run_for=text)[0].run_for in (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0:x | 1", "invalid weight 'x': use a whole number, as in 0:9 | 1:1"),
        ("0:0 | 1:0", "invalid weights '0:0 | 1:0': at least one must be above 0"),
    ],
)
def test_invalid_weights_are_ignored_with_an_error(text: str, error: str) -> None:
    behaviour, errors = behaviour_with(exit_code=text)
    assert (behaviour.exit_code, errors) == (3, [f"annotation devicemanager.io/exit-code: {error}"])
