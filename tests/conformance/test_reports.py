"""Reports: profile, exit status, waivers, and files in every format."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from devicemanager.cli.check import _Progress
from devicemanager.conformance import (
    FORMS,
    Check,
    CheckError,
    Line,
    Outcome,
    PluginUnderTest,
    Profile,
    Report,
    Severity,
    Verdict,
    Waiver,
    Waivers,
    select,
    write,
)
from devicemanager.conformance.drivers import driver_checks
from devicemanager.conformance.outcomes import RESTART
from devicemanager.conformance.report import Cause
from devicemanager.conformance.reports import check_place
from devicemanager.conformance.reports.folding import fold
from devicemanager.conformance.reports.text import explain, name_cause, timeline_lines

HOSTILE = "<script>alert(1)</script> \x1b[31m \x00 | `x` ]]> & \u202e \ud800"


def check_of(id_: str) -> Check:
    [found] = select([id_])
    return found


def report(**outcomes: Outcome) -> Report:
    """Return a report with these outcomes by check ID."""
    verdicts = tuple(
        Verdict(
            check_of(id_), outcome, HOSTILE, 1.5, (Line(0.5, "plugin", HOSTILE),), (HOSTILE,), "…"
        )
        for id_, outcome in outcomes.items()
    )
    return Report(
        PluginUnderTest(command=["plugin"]), verdicts, ("vendor.com/gpu",), 7, "1.36", 3.0
    )


def full_report(**outcomes: Outcome) -> Report:
    """Return a report of all checks; those without an outcome have passed."""
    return report(**{each.id: outcomes.get(each.id, Outcome.PASS) for each in select()})


@pytest.mark.parametrize(
    ("outcomes", "profile", "status"),
    [
        ({"R01": Outcome.PASS, "K06": Outcome.SKIP}, Profile.COMPLETE, 0),
        ({"R01": Outcome.PASS, "K06": Outcome.FAIL}, Profile.RESILIENT, 1),
        ({"R01": Outcome.PASS, "K01": Outcome.FAIL}, Profile.CORE, 1),
        ({"R01": Outcome.FAIL, "K01": Outcome.PASS}, None, 1),
        ({"R01": Outcome.WARN, "K01": Outcome.WAIVED}, Profile.COMPLETE, 0),
        ({"K01": Outcome.FAIL, "K06": Outcome.ERROR}, Profile.CORE, 2),
    ],
)
def test_profile_and_exit_status(
    outcomes: dict[str, Outcome], profile: Profile | None, status: int
) -> None:
    made = full_report(**outcomes)
    assert made.profile == profile
    assert made.exit_status() == status


def test_run_of_some_checks_earns_no_profile() -> None:
    made = report(**{each.id: Outcome.PASS for each in select(skip=["A18"])})
    assert made.profile is None
    assert made.exit_status() == 0
    assert made.profile_text == "no profile passed: checks of core that were not selected: 1 of 45"


def _skipped(family: str, count: int, severity: Severity = Severity.MUST) -> dict[str, Outcome]:
    """Return that all but ``count`` checks of a family and severity are skipped."""
    of_family = [each.id for each in select([family]) if each.severity is severity]
    return dict.fromkeys(of_family[count:], Outcome.SKIP)


@pytest.mark.parametrize(
    ("skipped", "text"),
    [
        (_skipped("A", 10), "profile complete passed"),
        (
            _skipped("A", 9),
            "no profile passed: too few checks of Allocate were carried out: 9, at least 10 needed",
        ),
        (_skipped("P", 0) | _skipped("S", 0) | _skipped("T", 0), "profile complete passed"),
        (
            _skipped("K", 5),
            "profile core passed; not resilient: too few checks of Restarts and upgrades were "
            "carried out: 5, at least 6 needed",
        ),
        (
            _skipped("L", 0, Severity.SHOULD),
            "profile resilient passed; not complete: too few checks of Life cycle and hygiene "
            "were carried out: 5, at least 6 needed",
        ),
    ],
)
def test_profile_needs_checks_that_were_carried_out(skipped: dict[str, Outcome], text: str) -> None:
    assert full_report(**skipped).profile_text == text


def test_profile_text_names_the_failures() -> None:
    assert full_report(K01=Outcome.FAIL).profile_text == (
        "profile core passed; not resilient: K01 failed"
    )
    made = full_report(A01=Outcome.FAIL, A02=Outcome.FAIL)
    assert made.profile_text == "no profile passed: A01, A02 failed"


def _without_hooks(made: Report, **needs: str) -> Report:
    """Return the report with checks that are skipped for lack of these hooks or options."""
    verdicts = tuple(
        attrs.evolve(each, outcome=Outcome.SKIP, needs=(needs[each.check.id],))
        if each.check.id in needs
        else each
        for each in made.verdicts
    )
    return attrs.evolve(made, verdicts=verdicts)


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (
            {"K09": "hook a", "W06": "hook a", "A03": "hook a"},
            "profile complete passed, without 2 MUST checks that need hooks: K09 W06",
        ),
        (
            {"W07": "hook a", "W08": "option --b", "W09": "hook a"},
            "profile complete passed, without 1 MUST check that needs hooks or options: W07, and "
            "2 SHOULD checks: W08 W09",
        ),
        ({"A03": "hook a"}, "profile complete passed"),
    ],
)
def test_verdict_names_checks_that_were_skipped_for_lack_of_hooks(
    needs: dict[str, str], text: str, tmp_path: Path
) -> None:
    made = _without_hooks(full_report(), **needs)
    assert made.profile_text == text
    data = made.data()
    assert sorted(data["profile_without"]) == sorted({*needs} - {"A03"})
    for form in FORMS:
        write(made, form, tmp_path / form)
        assert text in (tmp_path / form).read_text(), form


def test_verdict_of_a_lower_profile_names_only_its_own_checks() -> None:
    made = _without_hooks(full_report(K01=Outcome.FAIL), K09="hook a", W06="hook a", W08="hook a")
    assert made.profile_text == (
        "profile core passed, without 1 MUST check that needs hooks: W06; not resilient: K01 failed"
    )
    assert full_report(R01=Outcome.FAIL).data()["profile_without"] == []


def test_run_of_all_checks_with_too_few_carried_out_is_not_green() -> None:
    made = attrs.evolve(full_report(**_skipped("A", 9)), why_unusable="none is healthy")
    assert made.profile_text == (
        "no profile passed: none is healthy; too few checks of Allocate were carried out: 9, at "
        "least 10 needed"
    )
    assert [made.exit_status(each) for each in Profile] == [1, 1, 1]
    few = full_report(**_skipped("L", 0, Severity.SHOULD))
    assert [few.exit_status(each) for each in Profile] == [0, 0, 0]
    some = attrs.evolve(made, verdicts=made.verdicts[1:])
    assert some.exit_status() == 0


@pytest.mark.parametrize(("symptom", "count"), [("", 1), ("same", 1), ("other", 2)])
def test_effect_with_a_symptom_of_its_own_has_another_cause(symptom: str, count: int) -> None:
    made = report(W14=Outcome.FAIL, A19=Outcome.FAIL)
    symptoms = {"W14": "same", "A19": symptom}
    verdicts = tuple(attrs.evolve(e, symptom=symptoms[e.check.id]) for e in made.verdicts)
    causes = attrs.evolve(made, verdicts=verdicts).causes
    assert len(causes) == count
    assert causes[0].verdict.check.id == "W14"


def test_claims_that_a_driver_refuses_with_one_error_have_one_cause() -> None:
    checks = {each.id: each for each in driver_checks()}
    refused = "NodePrepareResources failed for claim UID {uid}: claim {uid} (claim-7-{n}): {why}"
    verdicts = tuple(
        Verdict(checks[id_], Outcome.FAIL, refused.format(uid=uuid.uuid4(), n=number, why=why))
        for number, (id_, why) in enumerate(
            {
                "DR05": "partial",
                "DC03": "partial",
                "DC13": "bad parameters",
                "DC18": "partial",
            }.items()
        )
    )
    made = attrs.evolve(report(), verdicts=verdicts)
    found = [
        (each.verdict.check.id, [one.check.id for one in each.effects]) for each in made.causes
    ]
    assert found == [("DC03", ["DR05", "DC18"]), ("DC13", [])]


def test_causes_group_failures_by_severity() -> None:
    """K15 fails because of K01, K09 because of W15, and L06 has a cause of its own."""
    fail = dict.fromkeys(("K15", "L06", "K09", "W15", "K01"), Outcome.FAIL)
    made = full_report(**fail, K02=Outcome.SKIP)
    verdicts = tuple(
        attrs.evolve(each, cause="K01" if each.check.id == "K02" else "") for each in made.verdicts
    )
    causes = [each.data() for each in attrs.evolve(made, verdicts=verdicts).causes]
    assert causes == [
        {"check": "K01", "severity": "MUST", "effects": ["K15"], "skipped": ["K02"]},
        {"check": "W15", "severity": "MUST", "effects": ["K09"], "skipped": []},
        {"check": "L06", "severity": "SHOULD", "effects": [], "skipped": []},
    ]


def test_cause_has_three_lines() -> None:
    verdict = Verdict(check_of("K01"), Outcome.FAIL, "it did not notice")
    others = [(Verdict(check_of(id_), Outcome.FAIL),) for id_ in ("K15", "K02")]
    assert name_cause(3, Cause(verdict, *others)).splitlines() == [
        "  3. K01 MUST re-registers after a kubelet restart",
        "     it did not notice",
        f"     on a node: {verdict.check.production}; also fails: K15; "
        "skipped for the same reason: K02",
    ]


@pytest.mark.parametrize(
    ("lines", "folded"),
    [
        (["a", "b", "a"], ["a", "b", "a"]),
        (["a 1", "a 2"], ["a 1", "a 2"]),
        (["a 1", "a 0x2f", "a 3.5", "b"], ["a 1", "(2 more like this)", "b"]),
        (["x", *["a", "b"] * 4, "a"], ["x", "a", "b", "(3 more times the last 2 lines)", "a"]),
        (["a", "a", "b"] * 3, ["a", "a", "b", "(2 more times the last 3 lines)"]),
        ([], []),
    ],
)
def test_repeated_lines_are_folded(lines: list[str], folded: list[str]) -> None:
    assert list(fold(lines)) == folded


def test_only_the_last_of_many_restarts_are_shown() -> None:
    texts = ["start", *(f"{text} {n}" if text != RESTART else text for n in "abcde"
                        for text in (RESTART, "one", "two", "three"))]  # fmt: skip
    lines = [*timeline_lines([Line(0.0, "suite", text) for text in texts])]
    assert [line[20:].strip() for line in lines] == [
        "start", "(12 lines of 3 earlier restarts)",
        RESTART, "one d", "two d", "three d", RESTART, "one e", "two e", "three e",
    ]  # fmt: skip


def test_failures_are_explained_before_warnings_the_most_severe_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = report(L10=Outcome.WARN, K06=Outcome.FAIL, R08=Outcome.WARN, K01=Outcome.FAIL)
    verdicts = tuple(Verdict(each.check, each.outcome, "seen") for each in made.verdicts)
    _Progress(True).end(attrs.evolve(made, verdicts=verdicts))
    found = re.findall(r"^(\w\d\d) (?:fail|warn): ", capsys.readouterr().out, re.MULTILINE)
    assert found == ["K01", "K06", "R08", "L10"]


def test_explanation_folds_timeline_and_output() -> None:
    timeline = tuple(Line(float(second), "call", f"Register {second}") for second in range(14))
    text = explain(Verdict(check_of("K01"), Outcome.FAIL, "", 1.0, timeline, ("no",) * 5))
    assert text.count("Register") == 1 + check_of("K01").does.count("Register")
    assert "(13 more like this)" in text and "| (4 more like this)" in text


def test_exit_status_depends_only_on_checks_of_the_profile() -> None:
    made = report(R01=Outcome.PASS, K01=Outcome.FAIL)
    assert made.exit_status(Profile.CORE) == 0
    assert made.exit_status(Profile.RESILIENT) == 1


@pytest.mark.parametrize("form", FORMS)
def test_output_of_a_hostile_plugin_is_escaped_in_every_format(form: str, tmp_path: Path) -> None:
    path = tmp_path / form
    made = report(R01=Outcome.FAIL, K01=Outcome.WARN, W02=Outcome.SKIP, L09=Outcome.PASS)
    write(made, form, path)
    text = path.read_text()
    assert "\x1b" not in text and "\x00" not in text
    if form != "json":
        assert "<script" not in text
    if form in ("junit", "badge"):
        ElementTree.fromstring(text)


def test_json_report_is_complete(tmp_path: Path) -> None:
    write(report(R01=Outcome.FAIL), "json", tmp_path / "report")
    data = json.loads((tmp_path / "report").read_text())
    assert data["schema"] == "devicemanager.check/v1"
    assert data["counts"] == {"fail": 1}
    [only] = data["checks"]
    assert (only["id"], only["outcome"], only["seen"]) == ("R01", "fail", HOSTILE)


def test_json_report_has_every_field(tmp_path: Path) -> None:
    check = check_of("R01")
    verdict = Verdict(
        check, Outcome.FAIL, "seen", 1.23456, (Line(0.5, "plugin", "text"),), ("out",), "repeat"
    )
    plugin = PluginUnderTest(command=["plugin", "--flag"])
    made = Report(plugin, (verdict,), ("vendor.com/gpu",), 7, "1.36", 3.45678)
    expected = {
        "schema": "devicemanager.check/v1",
        "plugin": ["plugin", "--flag"],
        "resources": ["vendor.com/gpu"],
        "kubelet_version": "1.36",
        "seed": 7,
        "seconds": 3.457,
        "profile": None,
        "profile_text": "no profile passed: R01 failed",
        "profile_without": [],
        "counts": {"fail": 1},
        "causes": [{"check": "R01", "severity": "MUST", "effects": [], "skipped": []}],
        "checks": [
            {
                "id": "R01",
                "severity": check.severity.value,
                "title": check.title,
                "outcome": "fail",
                "seen": "seen",
                "does": check.does,
                "expects": check.expects,
                "production": check.production,
                "links": list(check.links),
                "seconds": 1.235,
                "timeline": [{"time": 0.5, "source": "plugin", "text": "text"}],
                "output": ["out"],
                "reproduce": "repeat",
                "cause": "",
                "needs": [],
            }
        ],
    }
    write(made, "json", tmp_path / "report")
    assert (tmp_path / "report").read_text() == json.dumps(expected, indent=2) + "\n"


def test_summary_counts_every_outcome_in_order() -> None:
    ids = ["R01", "R02", "R03", "W01", "W02", "K01"]
    made = report(**dict(zip(ids, Outcome, strict=True)))
    assert made.summary == (
        "1 passed, 1 failed, 1 with a warning, 1 skipped, 1 waived, 1 could not run in 3 s"
    )


def test_junit_report_counts_outcomes_by_family(tmp_path: Path) -> None:
    made = report(R01=Outcome.FAIL, R02=Outcome.SKIP, K01=Outcome.PASS, W01=Outcome.ERROR)
    write(made, "junit", tmp_path / "report")
    root = ElementTree.parse(tmp_path / "report").getroot()
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == [
        "4", "1", "1", "1",
    ]  # fmt: skip
    assert [suite.get("name") for suite in root] == [
        "Registration", "Restarts and upgrades", "ListAndWatch",
    ]  # fmt: skip


def test_html_page_has_no_script_and_loads_nothing(tmp_path: Path) -> None:
    write(report(R01=Outcome.FAIL), "html", tmp_path / "report")

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "img", "link", "iframe")
            assert not any(name == "src" or name.startswith("on") for name, _ in attrs)

    Reader().feed((tmp_path / "report").read_text())


def test_unwritable_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"^cannot write report .*nowhere"):
        write(report(R01=Outcome.PASS), "json", tmp_path / "nowhere" / "x")


def test_place_of_a_report_is_checked_before_the_checks(tmp_path: Path) -> None:
    check_place("json", tmp_path / "report")
    with pytest.raises(
        CheckError,
        match=r"^unknown report format 'pdf': use one of json, junit, html, markdown, badge$",
    ):
        check_place("pdf", tmp_path / "report")
    for place in (tmp_path, tmp_path / "nowhere" / "report"):
        with pytest.raises(CheckError) as raised:
            check_place("json", place)
        advice = "use a writable file in an existing directory"
        assert str(raised.value) == f"cannot write report {place}: {advice}"


TODAY = datetime.date(2026, 11, 1)


def test_waiver_is_valid_until_its_date() -> None:
    waivers = Waivers([Waiver("K06", "known", TODAY)], TODAY)
    assert waivers.applied("K06", Outcome.FAIL, "no")[0] is Outcome.WAIVED
    assert waivers.applied("K07", Outcome.FAIL, "no") == (Outcome.FAIL, "no")
    late = Waivers([Waiver("K06", "known", TODAY)], TODAY + datetime.timedelta(1))
    outcome, seen = late.applied("K06", Outcome.WARN, "no")
    assert outcome is Outcome.FAIL and "expired on 2026-11-01" in seen


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1", "expected a list of mappings with id, reason and expires"),
        ("- K06", "entry 1: invalid waiver 'K06': expected id, reason and expires"),
        ("- {id: K66, reason: x, expires: 2027-01-01}", "entry 1: unknown check 'K66'"),
        (
            "- {id: K06, reason: ' ', expires: 2027-01-01}",
            "entry 1: empty reason: say why K06 may fail",
        ),
        (
            "- {id: K06, reason: x, expires: soon}",
            "entry 1: invalid expires 'soon': expected a date",
        ),
        ("- {", r"waivers.yaml: not YAML: line \d, column \d"),
        ("- {id: K06, id: K06, reason: x, expires: 2027-01-01}", 'line 1: key "id" already set'),
        ("- {id: K06, reason: x, expires: 2027-01-01}\n" * 2, "entry 2: duplicate waiver for K06"),
        ("", "expected a list of mappings with id, reason and expires"),
        ("- \udcff", r"not UTF-8 text \(byte 2\)"),
        (None, "waivers .*: No such file or directory"),
    ],
)
def test_invalid_waivers_are_rejected(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "waivers.yaml"
    if content is not None:
        path.write_text(content, errors="surrogateescape")
    with pytest.raises(CheckError, match=message):
        Waivers.read(path, ["K06"])


def test_waivers_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text("- {id: K06, reason: fix in review, expires: 2999-01-01}")
    outcome, _ = Waivers.read(path, ["K06"]).applied("K06", Outcome.FAIL, "no")
    assert outcome is Outcome.WAIVED


def test_text_of_check_explains_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(
        check_of("R01"), Outcome.WARN, "slow", 1.5, (Line(0.5, "plugin", "x"),), ("printed",), "…"
    )
    _Progress(True).end(attrs.evolve(report(), verdicts=(verdict,)))
    text = capsys.readouterr().out
    assert "\nR01 warn: slow\n" in text
    assert "\n  repeat:    …\n  timeline:\n" in text
    assert "\n  output:\n    | printed\n" in text
