"""``python -m tools.mutants``: which mutants there are, and which tests it gives them."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paths import ROOT
from tools.mutants import equivalents, report, running
from tools.mutants.mutations import mutants_of
from tools.mutants.selection import LONGEST, NEARBY, Selection


def changes(source):
    return [(each.old, each.new) for each in mutants_of("m.py", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", [("a < b", "(a <= b)")]),
        ("a == b in c", [("a == b in c", f"(a {ops} c)") for ops in ("!= b in", "== b not in")]),
        ("a and not b", [("a and not b", "(a or not b)"), ("not b", "(b)")]),
        ("x + y // z", [("x + y // z", "(x - y // z)"), ("y // z", "(y * z)")]),
        ("x = 7", [("7", "(8)")]),
        ("x = True", [("True", "(False)")]),
        ("x = 'é' + b", [("'é' + b", "('é' - b)"), ("'é'", "('XXé')")]),
        ("f(x)", [("f(x)", "pass")]),
        ("x += y", [("x += y", "x -= y"), ("x += y", "pass")]),
        ("a.b = c", [("a.b = c", "pass")]),
        ("def f(n=1):\n    return n", [("1", "(2)"), ("n", "(None)")]),
        ("def f():\n    return False", [("False", "(True)")]),
        ("for x in y:\n    break", [("break", "continue")]),
        ("if ready:\n    x = y", [("ready", "(not ready)")]),
        ("x = [a for a in b if a > c]", [("a > c", "(a >= c)")]),
        ("try:\n    raise e\nexcept E:\n    g()", [("raise e", "pass"), ("g()", "pass")]),
        ("match x:\n    case 1 if a in b:\n        pass", [("a in b", "(a not in b)")]),
    ],
)
def test_each_kind_of_mutant(source, expected):
    assert sorted(changes(source)) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring, 1 + 1."""',
        "__all__ = ['a']",
        "if TYPE_CHECKING:\n    x = 1",
        "T = TypeVar('T', bound='int')",
        "def f() -> 'int':\n    '''Text.'''\n    return None",
        "x: 'int'",
        "@attrs.frozen(slots=True)\nclass A: ...",
        "class A:\n    a = f(repr=False)\n    b = zip(c, d, strict=True)",
        "class A:\n    def __init__(self):\n        self.a = b",
    ],
)
def test_what_no_test_could_notice_is_left_alone(source):
    assert changes(source) == []


def test_every_mutant_of_the_ledger_compiles_and_differs():
    source = (ROOT / "devicemanager/core/ledger.py").read_text()
    mutants = mutants_of("ledger.py", source)
    assert len(mutants) > 50
    for mutant in mutants:
        changed = mutant.applied_to(source)
        compile(changed, "ledger.py", "exec")
        assert changed != source


def test_a_mutant_is_not_put_into_another_source():
    [mutant] = mutants_of("m.py", "x = 1\n")
    with pytest.raises(ValueError, match=r"m\.py has changed at line 1"):
        mutant.applied_to("y = 2\n")


def test_the_cheapest_tests_that_run_the_line_come_first_and_then_others_of_the_module():
    first, second, *_ = mutants_of("m.py", "x = 1\ny = 2\nz = 3\n")
    lines = {1: frozenset({"slow", "quick", "failing"}), 3: frozenset({"other"})}
    selection = Selection({"m.py": lines}, {"slow": 2.0, "quick": 0.1, "other": 0.01})
    assert selection.for_mutant(first) == ["quick", "slow", "other"]
    assert selection.for_mutant(second) == ["other", "quick", "slow"]
    assert selection.expected(["quick", "slow"]) == pytest.approx(2.1)
    dear = Selection({"m.py": lines}, {"slow": LONGEST, "quick": 0.1, "other": NEARBY + 1})
    assert dear.for_mutant(first) == ["quick", "other"]
    assert Selection({}, {}).for_mutant(first) == []


def test_a_dear_test_that_runs_little_else_comes_before_dear_ones_that_run_much():
    [mutant] = mutants_of("m.py", "x = 1\n")
    seconds = {"quick": 0.1, "much": LONGEST * 0.6, "about it": LONGEST * 0.7}
    lines = {"m.py": {1: frozenset(seconds)}}
    selection = Selection(lines, seconds, {"quick": 900, "much": 900, "about it": 9})
    assert selection.for_mutant(mutant) == ["quick", "about it"]


def test_the_file_with_most_cheap_tests_goes_first():
    tests = [f"a.py::{n}" for n in range(5)] + ["b.py::1", "b.py::2", "c.py::1"]
    selection = Selection({}, dict.fromkeys(tests, 0.1))
    assert selection.stages(tests) == [tests[:7], ["c.py::1"]]
    assert selection.stages(tests[:5]) == [tests[:5]]


MODULE = """\
def middle(low, high):
    return (low + high) // 2


def is_wide(low, high):
    return high - low > 10


def spare():
    return 3
"""
TESTS = """\
import subprocess, sys

from checkpoint import is_wide, middle

def test_middle():
    assert middle(2, 6) == 4

def test_wide():
    assert is_wide(0, 20)

def test_spare():
    code = "from checkpoint import spare; assert spare() == 3"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


COVERAGE = """\
[tool.coverage.run]
source_pkgs = ["checkpoint"]
patch = ["subprocess"]
"""


@pytest.fixture
def repository(tmp_path):
    """A repository of one module, with tests that overlook something."""
    root = tmp_path / "repository"
    for name, text in {
        "checkpoint/__init__.py": MODULE,
        "tests/test_middle.py": TESTS,
        "pyproject.toml": COVERAGE,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copytree(ROOT / "tools/mutants", root / "tools/mutants")
    return root


def test_survivors_are_shown_and_explained_ones_do_not_count(repository, tmp_path):
    cache, seen = tmp_path / "cache", []
    mutants = mutants_of("checkpoint/__init__.py", MODULE)
    wanted = {"(high - low >= 10)", "(low - high)", "(4)"}
    mutants = [each for each in mutants if each.new in wanted]
    selection = running.select(repository, cache, [])
    [spare] = (each for each in mutants if each.new == "(4)")
    assert selection.for_mutant(spare)[0].endswith("::test_spare")
    results = running.run(repository, cache, mutants, selection, 2, seen.append)
    outcomes = {each.mutant.new: (each.outcome, each.tests) for each in results}
    assert outcomes == {
        "(low - high)": ("killed", 3),
        "(high - low >= 10)": ("survived", 3),
        "(4)": ("killed", 3),
    }
    assert len(seen) == 3
    survivor = next(each.mutant for each in results if each.mutant.new.startswith("(high"))
    assert report.survivor_text(repository, survivor) == (
        "checkpoint/__init__.py:6 (is_wide)\n"
        " def is_wide(low, high):\n"
        "-    return high - low > 10\n"
        "+    return (high - low >= 10)\n"
        " "
    )
    known = (
        equivalents.Equivalent(
            "checkpoint/__init__.py:is_wide", survivor.old, survivor.new, "nobody asks for 10"
        ),
    )
    assert report.share_killed(results, ()) == pytest.approx(2 / 3)
    assert report.share_killed(results, known) == 1
    assert report.table(results, known).splitlines()[-1].split() == ["all", "3", "2", "1", "0"]


class ScriptedTree:
    """Answers each run in turn: the output of pytest, or None for a run that took too long."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.ran = []

    def put(self, file, source):
        self.source = source

    def pytest(self, arguments, seconds):
        self.ran.append((self.source, Path(arguments[-1][1:]).read_text().split(), seconds))
        output = self.answers.pop(0)
        code = 1 if output and "FAILED" in output else 0
        return output if output is None else subprocess.CompletedProcess([], code, output)


A, B = "t.py::a", "t.py::b"


@pytest.mark.parametrize(
    ("answers", "outcome", "ran"),
    [
        (["passed"], running.SURVIVED, [("new", [A, B])]),
        ([f"FAILED {A} - no", f"FAILED {A}"], running.KILLED, [("new", [A, B]), ("new", [A])]),
        # It failed once, and not again: the machine, perhaps. The other tests are asked.
        (
            [f"FAILED {A}", "passed", "passed"],
            running.SURVIVED,
            [("new", [A, B]), ("new", [A]), ("new", [B])],
        ),
        # No test could even be collected.
        (["FAILED elsewhere"], running.KILLED, [("new", [A, B])]),
        ([None, "passed"], running.TIMED_OUT, [("new", [A, B]), ("old", [A, B])]),
    ],
)
def test_what_happens_once_may_be_the_machine(answers, outcome, ran):
    tree = ScriptedTree(*answers)
    trial = running.Trial(tree, "m.py", "old", "new")
    assert trial.outcome([A, B], 1.0) == outcome
    assert [run[:2] for run in tree.ran] == ran
    assert tree.source == "old"


def test_a_machine_that_has_become_slow_is_given_its_time(monkeypatch):
    times = iter([0.0, 10.0])
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(times)))
    tree = ScriptedTree(None, "passed", "passed")
    assert running.Trial(tree, "m.py", "old", "new").outcome([A], 1.0) == running.SURVIVED
    assert [(source, seconds) for source, _, seconds in tree.ran] == [
        ("new", 4.0),
        ("old", running.PATIENCE),
        ("new", 40.0),
    ]


def test_a_suite_that_does_not_run_is_no_measurement(repository, tmp_path):
    (repository / "tests/test_middle.py").write_text("import nothing_of_the_kind")
    with pytest.raises(running.CannotMeasure, match="nothing_of_the_kind"):
        running.select(repository, tmp_path / "cache", [])


def test_every_explained_mutant_exists():
    for each in equivalents.read_equivalents():
        file, _, where = each.where.partition(":")
        mutants = mutants_of(file, (ROOT / file).read_text())
        assert (where, each.old, each.new) in {(m.where, m.old, m.new) for m in mutants}
        assert each.why
