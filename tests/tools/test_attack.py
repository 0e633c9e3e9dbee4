"""The tools of the attacks: limits, the table, helper processes, and bytes."""

import os
import re
import socket
import time

import attrs
import pytest

from protos import deviceplugin_v1beta1 as dp
from tools.attack import __main__ as command
from tools.attack import http2, plugins
from tools.attack.beside import Scene, _attacked, beside
from tools.attack.guards import Guard
from tools.attack.model import ATTACKS, FIGURES, Attack, Limits, Outcome, Quiet, Target, broken
from tools.attack.quiet import measure
from tools.attack.registry import attacks
from tools.attack.running import running
from tools.harness.planted import pause, selected
from tools.harness.process import HelperProcess, RequestFailed, short_directory
from tools.harness.usage import Usage, Watch

GOOD = Outcome(0.1, 0.1, 0.1, 0.1, 10.0, 1.0, 1, 1)


def an_attack(outcome=GOOD, name="tiny"):
    def run():
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Attack(name, "does nothing", run)


# -- judging ---------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_has_a_limit(figure):
    limits = Limits()
    most = getattr(limits, figure) * getattr(Quiet(), figure, 1)
    assert list(broken(limits, attrs.evolve(GOOD, **{figure: most}))) == []
    (text,) = broken(limits, attrs.evolve(GOOD, **{figure: most + 1}))
    assert text.startswith(f"{figure} {most + 1:g}")


def test_limits_of_time_are_multiples_of_the_times_without_an_attack():
    slow = Quiet(start=6.0, registration=0.3, admission=0.05)
    ten_times = Outcome(start=29.0, registration=14.0, admission=14.0)
    assert list(broken(Limits(), ten_times, slow)) == []
    assert len(list(broken(Limits(), ten_times))) == 3
    (text,) = broken(Limits(), attrs.evolve(ten_times, start=60.0), slow)
    assert text == (
        "start 60 s, 10 times as long as the 6 s without the attack; the limit is 8 times"
    )


def test_slow_code_of_a_bug_is_as_slow_as_the_machine(monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    pause(2.0)
    # Ten times longer registrations, and four times longer admissions.
    with selected("output is not escaped", Quiet(registration=0.3, admission=0.02).slowness):
        pause(2.0)
    pause(2.0)
    assert slept == [2.0, 8.0, 2.0]


def test_quiet_kubelet_is_measured():
    quiet = measure()
    assert all(getattr(quiet, name) >= least for name, least in attrs.asdict(Quiet()).items())


def test_short_times_count_as_those_of_an_idle_machine_of_the_same_speed():
    idle = Quiet()
    assert Quiet(start=0.4, stop=0.01, registration=0.01, admission=0.001).steady() == idle
    slow = Quiet(start=1.2, stop=0.01, registration=0.01, admission=0.5).steady()
    assert slow == Quiet(start=1.2, stop=0.6, registration=0.06, admission=0.5)


def test_unmeasured_figures_are_ignored_and_problems_are_not():
    assert list(broken(Limits(), Outcome())) == []
    assert list(broken(Limits(), Outcome(problems=("lost",)))) == ["lost"]


def test_command_judges_outcomes(monkeypatch, capsys, tmp_path):
    bad, failed = Outcome(admission=9.0), ValueError("no such thing")
    chosen = [an_attack(), an_attack(bad, "bad"), an_attack(failed, "failed")]
    monkeypatch.setattr(command, "attacks", lambda: chosen)
    monkeypatch.setattr(command, "measure", Quiet)
    results = tmp_path / "results.json"
    assert command.main(["--json", str(results)]) == 1
    out = capsys.readouterr().out
    assert "admission 9 s, 1800 times as long as the 0.005 s without" in out
    assert "the attack could not be carried out: ValueError('no such thing')" in out
    assert re.search(
        r"^attack: FAILED: \d s, 1 of 3 attacks held: broken: bad, failed$", out, re.MULTILINE
    )
    assert command.load(results)["bad"] == bad
    assert command.main(["--only", "ti*"]) == 0
    assert command.main(["--skip", "*"]) == 2
    assert "see --list" in capsys.readouterr().err
    assert command.main(["--list", "--only", "tiny"]) == 0
    assert capsys.readouterr().out.split() == ["tiny", "does", "nothing"]
    assert command.main(["--compare", str(results), str(results)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "| 9.00 → 9.00 |" in next(row for row in rows if row.startswith("| bad: "))


def test_planted_run_lists_missed_bugs_and_failed_attacks(monkeypatch, capsys):
    bad, failed = Outcome(admission=9.0), RequestFailed("not ready")
    guard = Guard("a bug", "output is not escaped")
    monkeypatch.setattr(Attack, "guard", guard)
    chosen = [an_attack(bad, "noticed"), an_attack(GOOD, "missed"), an_attack(failed, "failed")]
    monkeypatch.setattr(command, "attacks", lambda: chosen)
    monkeypatch.setattr(command, "measure", Quiet)
    assert command.main(["--planted"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{'missed':30}  output is not escaped: NOT NOTICED"
    assert "NOT CARRIED OUT: RequestFailed('not ready')" in lines[2]
    assert lines[3].endswith(
        "3 attacks with planted bugs: not noticed: missed; not carried out: failed"
    )
    assert command.main(["--planted", "--only", "noticed"]) == 0


def test_failure_of_the_quiet_kubelet_does_not_end_the_run(monkeypatch, capsys):
    def fail():
        raise RequestFailed("not ready")

    monkeypatch.setattr(command, "attacks", lambda: [an_attack(), an_attack(name="second")])
    monkeypatch.setattr(command, "measure", fail)
    assert command.main([]) == 1
    assert "broken: tiny, second" in capsys.readouterr().out


def test_save_adds_results_to_the_file(tmp_path):
    results = tmp_path / "results.json"
    command.save(results, {"a": GOOD})
    command.save(results, {"b": Outcome(problems=("lost",))})
    assert command.load(results) == {"a": GOOD, "b": Outcome(problems=("lost",))}
    table = command.comparison(
        [an_attack(name="a"), an_attack(name="z")], command.load(results), {}
    )
    assert "| a: does nothing | 0.10 → - |" in table
    assert "z: " not in table


def test_attack_names_are_unique():
    names = [attack.name for attack in attacks()]
    assert len(names) == len(set(names)) > 40


# -- processes -------------------------------------------------------------------------


def test_helper_process_answers_requests():
    with (
        short_directory() as root,
        HelperProcess("tools.attack.node", root, "{}") as node,
    ):
        assert Target(root).registration.is_socket()
        with pytest.raises(RequestFailed, match="RequestError: "):
            node.ask("terminate", "unknown")
        with pytest.raises(RequestFailed, match="KeyError"):
            node.ask("unknown")
        with pytest.raises(RequestFailed, match=r"request wait: no response within 0\.1 s"):
            node.ask("wait", "a.b/c", 1, 5.0, timeout=0.1)
        node.ask("stop")
        waiting = node.begin("wait", "a.b/c", 1, 60.0)
        node.process.kill()
        with pytest.raises(RequestFailed, match="the helper has exited"):
            waiting.result(20)


def test_watch_records_the_peak():
    with Watch(os.getpid()) as watch:
        held = [b"x" * 60_000_000]
        _until(lambda: watch.peak.memory >= watch.before.memory + 50)
        held.clear()
    assert watch.peak.max(Usage(0, 10_000, 0)).threads == 10_000


def _until(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_running_applies_shell_limits():
    with short_directory() as root, running(root, limits="echo limited >&2; exit 3") as command:
        assert command.until(lambda: False, 20.0) is not None
        assert command.process.poll() == 3
        assert command.errors == ["limited\n"]


def test_attack_beside_a_good_plugin_is_measured():
    outcome = next(attack for attack in attacks() if attack.name == "garbage").run()
    assert outcome.problems == ()
    assert outcome.registration > 0 < outcome.admission


def test_killed_attacker_proves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.attack.beside._SECONDS", 0)
    with pytest.raises(RequestFailed, match="the attacker was killed after 0 s"):
        _attacked("none", Scene(), tmp_path, node=None)


def test_failing_attacker_is_a_problem():
    # The attacker's process finds no attack of this name.
    beside("no-such-attack", "")(lambda target: None)
    outcome = ATTACKS.pop().run()
    assert outcome.problems == ("the attacker failed with exit status 1",)


# -- bytes -----------------------------------------------------------------------------


def test_device_bytes_are_readable_by_protobuf():
    made = plugins.device(b"d", [0, 300, -1, 1 << 62]) + plugins.device(b"e")
    parsed = dp.ListAndWatchResponse.FromString(made)
    nodes = [dp.NUMANode(ID=number) for number in (0, 300, -1, 1 << 62)]
    assert list(parsed.devices) == [
        dp.Device(ID="d", health="Healthy", topology=dp.TopologyInfo(nodes=nodes)),
        dp.Device(ID="e", health="Healthy"),
    ]
    assert plugins.filled(b"abc", 10) == b"abcabcabc"
    assert plugins.cut([b"abc", b"de", b"f"], 4) == b"abc"


def test_kubelet_answers_a_call_of_raw_frames():
    with short_directory() as root, HelperProcess("tools.attack.node", root, "{}"):
        target = Target(root)
        request = dp.RegisterRequest(version="none", resource_name="a.b/c").SerializeToString()
        first = http2.PREFACE + http2.settings(window=1 << 20)
        long = [(b"long", b"x" * 300)]
        call = http2.request_headers(1, "/v1beta1.Registration/Register", long)
        with http2.connect(target.registration, first + call + http2.message(1, request)) as peer:
            answer = b""
            while b"none" not in answer and (more := peer.recv(65536)):
                answer += more
        assert b"none" in answer


def test_compressed_request_is_decompressed_and_its_end_is_noticed(mock_kubelet):
    name = "x" * 100_000
    request = dp.RegisterRequest(version="none", resource_name=name).SerializeToString()
    frames = http2.compressed(1, "/v1beta1.Registration/Register", request)
    assert len(frames) < 1000
    first = http2.PREFACE + http2.settings()
    with http2.connect(mock_kubelet.plugin_socket, first + frames) as peer:
        http2.wait_for_end(peer)
    (rejected,) = [each for each in mock_kubelet.events.recent() if "rejected" in each.kind]
    assert '"none" is not supported' in rejected.message


def test_end_of_a_connection_is_not_the_end_of_a_call():
    ours, others = socket.socketpair()
    with ours, others:
        others.sendall(http2.settings() + http2.request_headers(1, "/x"))
        others.close()
        with pytest.raises(EOFError, match=r"^the server closed the connection before the call"):
            http2.wait_for_end(ours)
