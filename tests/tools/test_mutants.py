"""``python -m tools.mutants``: its mutants, and the tests that it selects for them."""

import functools
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paths import ROOT
from tools.mutants import report, running
from tools.mutants.__main__ import WINGS, spread
from tools.mutants.mutations import mutants_of
from tools.mutants.selection import LONGEST, NEARBY, CannotMeasure, Selection, wing_of


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
        ("class A(Enum):\n    RED = 'a label', 7\n    BLUE = 8", [("7", "(8)"), ("8", "(9)")]),
        ("match x:\n    case 1 if a in b:\n        pass", [("a in b", "(a not in b)")]),
    ],
)
def test_mutants_of_each_kind_of_statement(source, expected):
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
        "_log.warning('Text %s', a, extra=b)",
        "Key: TypeAlias = 'tuple[str, str]'",
        "class A(Enum):\n    RED = 'a label', point",
        "class A(TypedDict, total=False):\n    a: str",
        "Mode = Literal['a', 'b']",
        "a = cast('B', b)",
    ],
)
def test_code_without_testable_effect_has_no_mutants(source):
    # A log call can be removed as a whole; only its text is exempt.
    assert [each for each in changes(source) if each[1] != "pass"] == []


@pytest.mark.parametrize("file", ["checkpoint/fnv.py", "devicemanager/core/bitset.py"])
def test_mutants_of_a_module_compile_and_differ(file):
    source = (ROOT / file).read_text()
    mutants = mutants_of(file, source)
    assert len(mutants) > 50
    for mutant in mutants:
        changed = mutant.applied_to(source)
        compile(changed, file, "exec")
        assert changed != source


def test_mutant_rejects_a_different_source():
    [mutant] = mutants_of("m.py", "x = 1\n")
    with pytest.raises(ValueError, match=r"m\.py has changed at line 1"):
        mutant.applied_to("y = 2\n")


def test_selection_orders_tests_by_line_then_module_then_cost():
    first, second, *_ = mutants_of("m.py", "x = 1\ny = 2\nz = 3\n")
    lines = {1: frozenset({"slow", "quick", "failing"}), 3: frozenset({"other"})}
    selection = Selection({"m.py": lines}, {"slow": 2.0, "quick": 0.1, "other": 0.01})
    assert selection.for_mutant(first) == ["quick", "slow", "other"]
    assert selection.for_mutant(second) == ["other", "quick", "slow"]
    assert selection.expected(["quick", "slow"]) == pytest.approx(2.1)
    expensive = Selection({"m.py": lines}, {"slow": LONGEST, "quick": 0.1, "other": NEARBY + 1})
    assert expensive.for_mutant(first) == ["quick", "other"]
    assert Selection({}, {}).for_mutant(first) == []


def test_selection_adds_tests_of_the_wing_for_code_without_coverage():
    source = "def f(a=1):\n    return 2\nclass C:\n    x = 3\ndef g():\n    h(4)\n"
    found = mutants_of("devicemanager/core/m.py", source)
    in_default, in_return, _, in_class, in_call, _ = found
    assert [each.at_import for each in found] == [True, False, False, True, False, False]
    seconds = {"tests/core/b": 2.0, "tests/core/a": 0.1, "tests/kubelet/c": 0.1}
    lines = {2: frozenset({"tests/core/b"})}
    selection = Selection({"devicemanager/core/m.py": lines}, seconds, same_wing=True)
    assert selection.for_mutant(in_class) == ["tests/core/b", "tests/core/a"]
    assert selection.for_mutant(in_default) == ["tests/core/b", "tests/core/a"]
    assert selection.for_mutant(in_return) == ["tests/core/b"]
    assert selection.for_mutant(in_call) == ["tests/core/b", "tests/core/a"]


def test_selection_prefers_expensive_tests_that_run_few_lines():
    [mutant] = mutants_of("m.py", "x = 1\n")
    seconds = {"quick": 0.1, "much": LONGEST * 0.6, "about it": LONGEST * 0.7}
    lines = {"m.py": {1: frozenset(seconds)}}
    selection = Selection(lines, seconds, {"quick": 900, "much": 900, "about it": 9})
    assert selection.for_mutant(mutant) == ["quick", "about it"]


def test_selection_can_be_limited_to_the_wing_and_a_duration():
    [mutant] = mutants_of("devicemanager/core/m.py", "def f(): x = 1\n")
    lines = {1: frozenset({"tests/core/a", "tests/core/b", "tests/kubelet/c"})}
    seconds = {"tests/core/a": 1.0, "tests/core/b": 9.0, "tests/kubelet/c": 0.1}
    selection = Selection({mutant.file: lines}, seconds, same_wing=True)
    assert selection.for_mutant(mutant) == ["tests/core/a", "tests/core/b"]
    limited = Selection({mutant.file: lines}, seconds, same_wing=True, longest=5.0)
    assert limited.for_mutant(mutant) == ["tests/core/a"]


@pytest.mark.parametrize(
    ("file", "wing"),
    [("devicemanager/core/topology/hints.py", "core"), ("checkpoint/store.py", "checkpoint")],
)
def test_wing_of_a_source_file(file, wing):
    assert wing_of(file) == wing


def test_every_package_has_a_sample():
    packages = {path.parent.name for path in ROOT.glob("devicemanager/*/__init__.py")}
    assert set(WINGS) == packages | {"checkpoint", "podresources"}


def test_sample_has_the_same_number_of_each_wing_as_far_as_possible():
    groups = [mutants_of(f"{name}.py", "x = 1\n" * size) for name, size in [("a", 9), ("b", 1)]]
    groups.append(mutants_of("c.py", "y = 2\n" * 50))
    sample = spread(groups, 12, seed=23)
    counts = [sum(each.file == f"{name}.py" for each in sample) for name in "abc"]
    assert counts[1] == 1
    assert sorted([counts[0], counts[2]]) == [5, 6]
    assert sample == spread(groups, 12, seed=23) != spread(groups, 12, seed=24)
    assert len(set(sample)) == 12
    assert len(spread(groups, 99, seed=1)) == 60


def test_first_stage_has_the_file_with_most_cheap_tests():
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
    """Create a repository of one module whose tests miss a mutant."""
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


def test_run_shows_survivors_and_excludes_explained_ones(repository, tmp_path):
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
    assert report.diff(repository, survivor) == (
        "checkpoint/__init__.py:6 (is_wide)\n"
        "--- a/checkpoint/__init__.py\n"
        "+++ b/checkpoint/__init__.py\n"
        "@@ -4,5 +4,5 @@\n"
        " \n"
        " def is_wide(low, high):\n"
        "-    return high - low > 10\n"
        "+    return (high - low >= 10)\n"
        " \n"
        " "
    )
    known = (
        report.Equivalent(
            "checkpoint/__init__.py:is_wide", survivor.old, survivor.new, "no caller uses 10"
        ),
    )
    assert report.share_killed(results, ()) == pytest.approx(2 / 3)
    assert report.share_killed(results, known) == 1
    rows = report.table(results, known, wing_of).splitlines()
    assert [row.split() for row in rows[1:]] == [
        [name, "3", "2", "1", "0"] for name in ("checkpoint", "all")
    ]


class ScriptedTree:
    """Tree with scripted runs: the output of pytest, or None for a timeout."""

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
        # It failed only once, perhaps because the machine is busy: the other tests decide.
        (
            [f"FAILED {A}", "passed", "passed"],
            running.SURVIVED,
            [("new", [A, B]), ("new", [A]), ("new", [B])],
        ),
        # The mutant breaks the collection of tests.
        (
            ["FAILED elsewhere", "passed"],
            running.KILLED,
            [("new", [A, B]), ("old", [A, B])],
        ),
        ([None, "passed"], running.TIMED_OUT, [("new", [A, B]), ("old", [A, B])]),
    ],
)
def test_trial_repeats_failures_and_timeouts(answers, outcome, ran):
    tree = ScriptedTree(*answers)
    trial = running.Trial(tree, "m.py", "old", "new")
    assert trial.outcome([A, B], 1.0) == outcome
    assert [run[:2] for run in tree.ran] == ran
    assert tree.source == "old"


def test_run_that_fails_without_the_mutant_is_an_error():
    tree = ScriptedTree("FAILED elsewhere", "FAILED elsewhere")
    with pytest.raises(CannotMeasure, match="fail even without the mutant:\nFAILED elsewhere"):
        running.Trial(tree, "m.py", "old", "new").outcome([A], 1.0)


def test_trial_extends_the_limit_on_a_slow_machine(monkeypatch):
    times = iter([0.0, 10.0])
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(times)))
    tree = ScriptedTree(None, "passed", "passed")
    assert running.Trial(tree, "m.py", "old", "new").outcome([A], 1.0) == running.SURVIVED
    assert [(source, seconds) for source, _, seconds in tree.ran] == [
        ("new", 4.0),
        ("old", running.PATIENCE),
        ("new", 40.0),
    ]


def test_select_rejects_a_suite_that_does_not_run(repository, tmp_path):
    (repository / "tests/test_middle.py").write_text("import no_such_module")
    with pytest.raises(CannotMeasure, match="no_such_module"):
        running.select(repository, tmp_path / "cache", [])


def test_explained_mutants_exist():
    made = functools.cache(lambda file: [*mutants_of(file, (ROOT / file).read_text())])
    for each in report.read_equivalents():
        file, _, where = each.where.partition(":")
        assert (where, each.old, each.new) in {(m.where, m.old, m.new) for m in made(file)}
        assert each.why
