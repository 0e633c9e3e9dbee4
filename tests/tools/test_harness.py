"""The harness of the long tests: command line, verdict, and the model of what must hold."""

import attrs
import pytest

from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.core.errors import InternalError
from tools.harness.command import Run, add_choice, choose, counts, parser
from tools.harness.model import Broken, Confirmed, check_disjoint, check_same, devices_on_disk
from tools.harness.process import HelperProcess, RequestFailed, short_directory

R = "a.b/r"


@attrs.frozen
class Case:
    name: str
    about: str = "something"


def test_parser_takes_the_type_of_the_default():
    options = parser("x", "", laps=(10, "laps"), minutes=(5.0, "minutes"))
    chosen = options.parse_args(["--laps", "3", "--minutes", "0.5"])
    assert (chosen.laps, chosen.minutes) == (3, 0.5)
    assert "minutes (5.0)" in options.format_help()


@pytest.mark.parametrize(
    ("arguments", "names", "status"),
    [
        ([], ["list-a", "list-b", "other"], None),
        (["--only", "list-*", "--skip", "*-b"], ["list-a"], None),
        (["--only", "list"], [], 2),
        (["--list", "--skip", "list-*"], ["other"], 0),
    ],
)
def test_cases_are_selected_by_name(capsys, arguments, names, status):
    options = parser("x", "")
    add_choice(options)
    cases = [Case("list-a"), Case("list-b"), Case("other")]
    chosen, found = choose("x", cases, options.parse_args(arguments))
    assert ([case.name for case in chosen], found) == (names, status)
    error = "x: no case has this name: see --list\n" if status == 2 else ""
    assert capsys.readouterr().err == error


@pytest.mark.parametrize("error", [Broken("lost"), InternalError("lost"), RequestFailed("lost")])
def test_broken_promise_fails_the_run(capsys, error):
    run = Run("x", seed=7)
    with run.recording_problems():
        raise error
    assert run.finish("3 laps", "nothing lost") == 1
    assert capsys.readouterr().out == "x: FAILED: seed 7, 0 s, 3 laps: lost\n"


def test_bug_of_the_tool_is_raised(capsys):
    run = Run("x")
    with pytest.raises(KeyError), run.recording_problems():
        raise KeyError("bug")
    assert run.finish(counts({"b": 2, "a": 1}), "nothing lost") == 0
    assert capsys.readouterr().out == "x: ok: 0 s, 1 a, 2 b: nothing lost\n"


def entry(uid, *ids, container="c"):
    return PodDevicesEntry(uid, container, R, {0: ids}, b"")


@pytest.mark.parametrize("other", [entry("b", "d"), entry("a", "d", container="d")])
def test_device_on_disk_for_two_containers_is_noticed(other):
    saved = Checkpoint((entry("a", "d"), other), {})
    with pytest.raises(Broken, match=f"{R} d is allocated to a and to {other.pod_uid}"):
        devices_on_disk(saved)
    assert devices_on_disk(Checkpoint(None, {})) == {}


def test_disagreeing_sources_are_noticed():
    one, two = frozenset({"r 1"}), frozenset({"r 1", "r 2"})
    check_disjoint({"a": one, "b": two - one})
    with pytest.raises(Broken, match="r 1 is allocated to a and to b"):
        check_disjoint({"a": one, "b": two})
    check_same("the file", {"a": one}, {"a": one})
    expected = (
        "the file shows wrong devices for 2 pods, the first is a: .*'r 1'.*, expected .*'r 2'"
    )
    with pytest.raises(Broken, match=expected):
        check_same("the file", {"a": one}, {"a": two, "b": one})


def test_unknown_report_is_noticed():
    with pytest.raises(Broken, match="unknown state 'paused' of pod a"):
        Confirmed().add("paused", "a")


def test_failed_helper_process_names_its_last_error():
    with short_directory() as root, pytest.raises(RequestFailed, match="exited: ValueError: "):
        # Without the other arguments the process fails at its start.
        HelperProcess("tools.harness.plugin", root)
