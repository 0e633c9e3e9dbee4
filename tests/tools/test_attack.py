"""The attacks' own tools: limits, the table, helpers, bytes that no library would send."""

import json
import os
import time

import attrs
import pytest

from protos import deviceplugin_v1beta1 as dp
from tools.attack import command, http2, messages, report
from tools.attack.beside import beside, directory
from tools.attack.model import FIGURES, Attack, Limits, Outcome, Target, broken
from tools.attack.registry import attacks
from tools.attack.requests import Helper, RequestFailed
from tools.attack.running import running
from tools.attack.watch import Holding, Watch

GOOD = Outcome(0.1, 0.1, 0.1, 10.0, 1.0, 1, 1)


def an_attack(outcome=GOOD, name="tiny"):
    def run():
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Attack(name, "does nothing", run)


# -- judging ---------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_has_its_limit(figure):
    limits = Limits()
    most = getattr(limits, figure)
    assert list(broken(limits, attrs.evolve(GOOD, **{figure: most}))) == []
    (text,) = broken(limits, attrs.evolve(GOOD, **{figure: most + 1}))
    assert text.startswith(f"{figure} {most + 1:g}")


def test_what_was_not_measured_breaks_nothing_and_a_promise_always_does():
    assert list(broken(Limits(), Outcome())) == []
    assert list(broken(Limits(), Outcome(problems=("lost",)))) == ["lost"]


def test_the_command_judges(monkeypatch, capsys, tmp_path):
    bad, failed = Outcome(admission=9.0), ValueError("no such thing")
    chosen = [an_attack(), an_attack(bad, "bad"), an_attack(failed, "failed")]
    monkeypatch.setattr(command, "attacks", lambda: chosen)
    kept = tmp_path / "kept.json"
    assert command.main(["--json", str(kept)]) == 1
    out = capsys.readouterr().out
    assert "admission 9 s, at most 1.5 s" in out
    assert "the attack could not be carried out: ValueError('no such thing')" in out
    assert "attack: 1 of 3 attacks held in 0 s; broken: bad, failed" in out
    assert report.load(kept)["bad"] == bad
    assert command.main(["--only", "ti*"]) == 0
    assert command.main(["--skip", "*"]) == 2
    assert "see --list" in capsys.readouterr().err
    assert command.main(["--list", "--only", "tiny"]) == 0
    assert capsys.readouterr().out.split() == ["tiny", "does", "nothing"]
    assert command.main(["--compare", str(kept), str(kept)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "| 9.00 → 9.00 |" in next(row for row in rows if row.startswith("| bad: "))


def test_results_are_kept_for_each_attack(tmp_path):
    kept = tmp_path / "kept.json"
    report.save(kept, {"a": GOOD})
    report.save(kept, {"b": Outcome(problems=("lost",))})
    assert report.load(kept) == {"a": GOOD, "b": Outcome(problems=("lost",))}
    table = report.comparison([an_attack(name="a"), an_attack(name="z")], report.load(kept), {})
    assert "| a: does nothing | 0.10 → - |" in table
    assert "z: " not in table


def test_every_attack_has_a_name_of_its_own():
    names = [attack.name for attack in attacks()]
    assert len(names) == len(set(names)) > 40


# -- processes -------------------------------------------------------------------------


def test_a_helper_answers_and_fails_by_name():
    with directory() as root, Helper("tools.attack.node", root, json.dumps({})) as node:
        assert Target(root).registration.is_socket()
        with pytest.raises(RequestFailed, match="RequestError: "):
            node.ask("terminate", "nobody")
        with pytest.raises(RequestFailed, match="KeyError"):
            node.ask("unknown")
        with pytest.raises(RequestFailed, match=r"wait: no answer within 0\.1 s"):
            node.ask("wait", "a.b/c", 1, 5.0, timeout=0.1)
        node.ask("stop")
        waiting = node.begin("wait", "a.b/c", 1, 60.0)
        node.process.kill()
        with pytest.raises(RequestFailed, match="the process has ended"):
            waiting.result(20)


def test_a_watch_sees_the_peak():
    with Watch(os.getpid()) as watch:
        held = [b"x" * 60_000_000]
        _until(lambda: watch.peak.memory >= watch.before.memory + 50)
        held.clear()
    assert watch.peak.most(Holding(0, 10_000, 0)).threads == 10_000


def _until(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_the_command_under_limits_of_a_shell():
    with directory() as root, running(root, limits="echo limited >&2; exit 3") as command:
        assert command.until(lambda: False, 20.0) is not None
        assert command.process.poll() == 3
        assert command.errors == ["limited\n"]


def test_an_attack_beside_a_good_plugin():
    outcome = next(attack for attack in attacks() if attack.name == "garbage").run()
    assert outcome.problems == ()
    assert outcome.registration > 0 < outcome.admission


def test_an_attacker_that_fails_is_a_problem():
    # The attacker's process finds no attack of this name.
    outcome = beside("no-such-attack", "", lambda target: None).run()
    assert outcome.problems == ("the attacker itself failed with 1",)


# -- bytes -----------------------------------------------------------------------------


def test_devices_are_what_protobuf_reads():
    made = messages.device(b"d", [0, 300, -1, 1 << 62]) + messages.device(b"e")
    parsed = dp.ListAndWatchResponse.FromString(made)
    nodes = [dp.NUMANode(ID=number) for number in (0, 300, -1, 1 << 62)]
    assert list(parsed.devices) == [
        dp.Device(ID="d", health="Healthy", topology=dp.TopologyInfo(nodes=nodes)),
        dp.Device(ID="e", health="Healthy"),
    ]
    assert messages.filled(b"abc", 10) == b"abcabcabc"
    assert messages.cut([b"abc", b"de", b"f"], 4) == b"abc"


def test_a_call_by_hand_is_answered():
    with directory() as root, Helper("tools.attack.node", root, json.dumps({})):
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
