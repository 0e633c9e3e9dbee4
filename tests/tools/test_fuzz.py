"""The corpus of the fuzzer, replayed; and the fuzzer's own tools."""

import importlib.util
import logging

import pytest

from tools.fuzz import command
from tools.fuzz.guard import Guard, TooMuch
from tools.fuzz.registry import main, targets

SLOW = 20.0
"""Seconds for one input here, where a slow machine is no finding."""


@pytest.fixture(autouse=True)
def log_level():
    """Restore the level that a target sets: later tests in this process read the log."""
    logger = logging.getLogger("devicemanager")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_nothing_in_the_corpus_breaks_its_reader(target):
    run = Guard(target.load(), seconds=SLOW)
    run(b"")
    inputs = target.inputs()
    assert len(inputs) >= 1
    for name, data in inputs.items():
        try:
            run(data)
        except Exception as error:
            error.add_note(f"input {name}")
            raise


def test_names_are_told_apart_and_corpora_are_small():
    names = [target.name for target in targets()]
    assert len(names) == len(set(names)) >= 9
    for target in targets():
        assert sum(map(len, target.inputs().values())) < 200_000, target.name


def test_the_guard_sees_time_and_memory():
    Guard(lambda data: None)(b"x")
    with pytest.raises(TooMuch, match=r"took \d\.\d\d s for 1 bytes"):
        Guard(lambda data: None, seconds=-1.0)(b"x")
    with pytest.raises(TooMuch, match=r"took \d+ MB for 1 bytes"):
        Guard(lambda data: None, memory=-1.0)(b"x")
    with pytest.raises(KeyError):
        Guard(lambda data: {}[data])(b"x")


def test_one_input_alone(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"gpu-0 Healthy\n")
    main(["control", str(path)])


# -- the command -----------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As if there were a fuzzer; what it would write goes elsewhere."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(command, "_FOUND", tmp_path)


def said(monkeypatch, *answers):
    """What the fuzzer says each time: its output and its exit status."""
    left = list(answers)
    stats = "stat::number_of_executed_units: 7\nstat::peak_rss_mb: 50\n"

    def once(*arguments):
        text, code = left.pop(0) if left else ("", 0)
        return stats + text, code

    monkeypatch.setattr(command, "_once", once)
    times = iter(range(100))
    monkeypatch.setattr(command.time, "monotonic", lambda: next(times))


def test_wrong_usage(capsys, monkeypatch):
    assert command.main(["--only", "nothing"]) == 2
    assert "see --list" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command.main([]) == 2
    assert "use `make fuzz`" in capsys.readouterr().err
    assert command.main(["--list", "--only", "control"]) == 0
    assert capsys.readouterr().out.startswith("control ")


def test_nothing_is_found(installed, monkeypatch, capsys):
    said(monkeypatch)
    assert command.main(["--only", "control", "--seconds", "3"]) == 0
    out = capsys.readouterr().out
    assert out == "fuzz: control: 3 s, 14 runs, 0 inputs, peak 50 MB: nothing found\n"


def test_what_is_only_slow_to_watch_is_no_finding(installed, monkeypatch, tmp_path, capsys):
    path = tmp_path / "slow"
    path.write_bytes(b"gpu-0 Healthy\n")
    said(monkeypatch, (f"Test unit written to {path}\n", 77))
    assert command.main(["--only", "control", "--seconds", "4"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert not path.exists()


def test_a_finding_is_told_with_its_file(installed, monkeypatch, tmp_path, capsys):
    absent = tmp_path / "absent"
    said(monkeypatch, (f"Test unit written to {absent}\n", 77))
    assert command.main(["--only", "control", "--seconds", "5"]) == 1
    out = capsys.readouterr().out
    assert "FileNotFoundError" in out
    assert out.endswith(f": {absent}\n")


def test_a_fuzzer_that_cannot_start_is_a_finding(installed, monkeypatch, capsys):
    said(monkeypatch, ("cannot start", 1))
    assert command.main(["--only", "control", "--seconds", "5"]) == 1
    assert capsys.readouterr().out.endswith(": cannot start\n")
