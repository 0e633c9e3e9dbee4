"""Replay the corpus of the fuzzer, and test the fuzzer's command."""

import importlib.util

import pytest

from tools.fuzz import __main__ as command
from tools.fuzz.model import Guard, TooMuch
from tools.fuzz.worker import main, targets

SLOW = 2000.0
"""Multiple of the machine's unit for one input. Coverage slows the code down."""


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_corpus_has_no_findings(target):
    run = Guard(target.load(), times=SLOW)
    run(b"")
    inputs = target.inputs()
    assert len(inputs) >= 1
    for name, data in inputs.items():
        try:
            run(data)
        except Exception as error:
            error.add_note(f"input {name}")
            raise


def test_target_names_are_unique_and_corpora_are_small():
    names = [target.name for target in targets()]
    assert len(names) == len(set(names)) >= 9
    for target in targets():
        assert sum(map(len, target.inputs().values())) < 200_000, target.name


def test_guard_limits_time_and_memory():
    Guard(lambda data: None)(b"x")
    with pytest.raises(TooMuch, match=r"of 1 bytes took \d\.\d\d s, \d+ times the unit of this"):
        Guard(lambda data: None, times=-1.0)(b"x")
    with pytest.raises(TooMuch, match=r"of 1 bytes took \d+ MB"):
        Guard(lambda data: None, memory=-1.0)(b"x")
    with pytest.raises(KeyError):
        Guard(lambda data: {}[data])(b"x")


def test_worker_replays_one_input(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"gpu-0 Healthy\n")
    main(["replay", "control", str(path)])


# -- the command -----------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend that the fuzzer is installed, and write its output to a temporary directory."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(command, "_OUTPUT", tmp_path)


def outputs(monkeypatch, *results):
    """Replace the fuzzer by these results: output and exit status."""
    left = list(results)
    stats = "stat::number_of_executed_units: 7\nstat::peak_rss_mb: 50\n"

    def once(*arguments):
        text, code = left.pop(0) if left else ("", 0)
        return stats + text, code

    monkeypatch.setattr(command, "_once", once)
    times = iter(range(100))
    monkeypatch.setattr(command.time, "monotonic", lambda: next(times))


def test_wrong_usage_exits_with_2(capsys, monkeypatch):
    assert command.main(["--only", "nothing"]) == 2
    assert "see --list" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command.main([]) == 2
    assert "use `make fuzz`" in capsys.readouterr().err
    assert command.main(["--list", "--only", "control"]) == 0
    assert capsys.readouterr().out.startswith("control ")


def test_command_reports_no_finding(installed, monkeypatch, capsys):
    outputs(monkeypatch)
    assert command.main(["--only", "control", "--seconds", "3"]) == 0
    out = capsys.readouterr().out
    line, verdict = out.splitlines()
    assert line == "fuzz: control: 3 s, 14 runs, 0 inputs, peak 50 MB: nothing found"
    assert verdict.startswith("fuzz: ok: ")


def test_input_that_is_slow_only_in_the_fuzzer_is_ignored(installed, monkeypatch, tmp_path, capsys):
    path = tmp_path / "slow"
    path.write_bytes(b"gpu-0 Healthy\n")
    outputs(monkeypatch, (f"Test unit written to {path}\n", 77))
    assert command.main(["--only", "control", "--seconds", "4"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert not path.exists()


def test_finding_names_its_input_file(installed, monkeypatch, tmp_path, capsys):
    absent = tmp_path / "absent"
    outputs(monkeypatch, (f"Test unit written to {absent}\n", 77))
    assert command.main(["--only", "control", "--seconds", "5"]) == 1
    out = capsys.readouterr().out
    assert "FileNotFoundError" in out
    line, verdict = out.splitlines()
    assert line.endswith(f": {absent}")
    assert verdict.startswith("fuzz: FAILED: ")
    assert verdict.endswith(": control")


def test_fuzzer_that_cannot_start_is_a_finding(installed, monkeypatch, capsys):
    outputs(monkeypatch, ("cannot start", 1))
    assert command.main(["--only", "control", "--seconds", "5"]) == 1
    assert ": cannot start\n" in capsys.readouterr().out
