"""What containers do, as people write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.cluster.facts import Facts, Play, Range, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", 2.0), ("0.5", 0.5), ("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0)],
)
def test_times(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1d", "1s2", "nan", "9" * 20])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time such as 30s|more than ten years"):
        seconds(text)


@given(st.text(max_size=8))
def test_any_other_text_is_rejected_or_no_less_than_nothing(text: str) -> None:
    try:
        assert seconds(text) >= 0
    except ValueError as error:
        assert "\n" not in str(error)


def test_an_annotation_as_long_as_a_book_is_cut() -> None:
    long = "9" * 100_000
    notes = {"devicemanager.io/exit-code": long, "devicemanager.io/run-for": f"{long}x"}
    play, faults = Facts().of({"uid": "u", "annotations": notes})
    assert play.exit_code == 0 and len(faults) == 2
    assert all(len(each) < 200 for each in faults)


@pytest.mark.parametrize("text", ["1s±0.5", "1s±500ms", "1s+-0.5s", "1s ± 0.5s"])
def test_a_span(text: str) -> None:
    span = Range.parse(text)
    assert span == Range(1.0, 0.5)
    assert span.of("a") == span.of("a")


@given(st.uuids().map(str), st.floats(0, 10), st.floats(0, 10))
def test_a_span_keeps_within_its_bounds(uid: str, middle: float, spread: float) -> None:
    assert max(0.0, middle - spread) <= Range(middle, spread).of(uid) <= middle + spread + 1e-9


def test_spans_differ_between_pods() -> None:
    assert len({Range(5.0, 1.0).of(str(number)) for number in range(100)}) == 100


def test_pods_of_jobs_end_and_others_do_not() -> None:
    facts = Facts(run_for=None, job_duration=Range(3.0))

    def runs(*owners: dict[str, object]) -> float | None:
        play, faults = facts.of({"uid": "u", "ownerReferences": list(owners)})
        assert faults == []
        return play.run_for

    assert runs({"kind": "Job", "controller": True}) == 3.0
    assert runs() is None
    assert runs({"kind": "ReplicaSet", "controller": True}) is None
    assert runs({"kind": "Job"}) is None


def test_the_longest_times() -> None:
    assert seconds("87600h") == 10 * 365 * 24 * 3600
    with pytest.raises(ValueError, match=r"^'87600h1s' is more than ten years$"):
        seconds("87600h1s")
    assert seconds("1s" * 30) == 30.0
    with pytest.raises(ValueError, match=rf"^'{'1s' * 30}…' is not a time such as 30s, 1m30s or"):
        seconds("1s" * 31)


def said(**notes: str) -> tuple[Play, list[str]]:
    """What a pod with these annotations does, by facts of everybody."""
    annotations = {
        f"devicemanager.io/{name.replace('_', '-')}": value for name, value in notes.items()
    }
    facts = Facts(start_delay=Range(1.0), run_for=Range(2.0), exit_code=3)
    return facts.of({"uid": "u", "annotations": annotations})


def test_what_a_pod_says_counts_before_what_holds_for_all() -> None:
    assert said() == (Play(1.0, 2.0, 3, False), [])
    notes = {"start_delay": "10s", "run_for": "20s", "exit_code": "0", "never_ready": "true"}
    assert said(**notes) == (Play(10.0, 20.0, 0, True), [])
    assert Facts().of({"uid": "u"}) == (Play(0.0, None, 0, False), [])


@pytest.mark.parametrize(("text", "code"), [("0", 0), ("255", 255), ("007", 7)])
def test_exit_codes(text: str, code: int) -> None:
    assert said(exit_code=text) == (Play(1.0, 2.0, code, False), [])


@pytest.mark.parametrize("text", ["256", "-1", "", "1.0", "²", "0001"])
def test_what_is_no_exit_code_counts_as_not_said(text: str) -> None:
    fault = f"annotation devicemanager.io/exit-code: {text!r} is not a number from 0 to 255"
    assert said(exit_code=text) == (Play(1.0, 2.0, 3, False), [fault])


def test_what_is_no_time_counts_as_not_said() -> None:
    play, faults = said(start_delay="soon", run_for="later")
    assert play == Play(1.0, 2.0, 3, False)
    assert faults == [
        f"annotation devicemanager.io/{name}: {text!r} is not a time such as 30s, 1m30s or 500ms"
        for name, text in (("start-delay", "soon"), ("run-for", "later"))
    ]


@pytest.mark.parametrize(
    ("text", "never"), [("true", True), ("1", True), ("YES", True), ("no", False), ("", False)]
)
def test_never_ready(text: str, never: bool) -> None:
    assert said(never_ready=text)[0].never_ready is never
