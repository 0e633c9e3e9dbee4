"""Select the sample of recorded vectors in tests/data/vectors: ``python -m tools.vector_sample``.

The full sets are too large for the repository. The sample must be small, but a replay of it must
still fail if a decision of the code is broken. Therefore the code that vectors reach decides:

1. Replay each vector under branch coverage, with all caches cleared before it. Its *features*
   are the branches it takes, the messages it expects, and its configuration (policy, scope,
   kubelet version and the like).
2. Repeatedly choose the vector with the highest value of its features per byte. The value of a
   feature falls with each chosen vector that has the feature. If ``ENOUGH`` chosen vectors have it,
   its value is 0. One vector per branch is not enough: it would run a broken line, but often not
   fail.
3. Stop when no vector adds a value, or when the size limit of the set (``budget``) is reached.

The choice is deterministic. Texts for people (``note``, ``why``, ``source``, ``tags``) are left
out. Everything else is copied unchanged, in the order of the full set.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import attrs
import yaml
from coverage import Coverage, CoverageData

from devicemanager.claims.dra.profile import Profile
from devicemanager.core.versions.version import KubeletVersion
from tools.replay import admission, cel, checkpoint, claims, dra, dra_allocate, lively
from tools.replay.dra_expected import expected_steps
from tools.replay.lively_behaviours import BEHAVIOURS

ROOT: Final = Path(__file__).parents[1]
SAMPLE: Final = ROOT / "tests" / "data" / "vectors"
FULL: Final = ROOT.parent / "shared" / "vectors"
CEL: Final = "cel-dra.jsonl"
CEL_DEVICES: Final = "cel-dra-devices.json"
OLDER: Final = "lively-1.28.jsonl"
ENOUGH: Final = 4
_UNEXPLAINED: Final = frozenset({"d1-267", "d1-425"})
"""Names of lively scenarios (sequences of operations) whose replay differs from the recorded
results."""
_CHEAP: Final = 10_000
"""Largest cost of a selector in the sample: the costliest evaluations take a second."""
_BEHAVIOUR: Final = "behaviour"
_WORTH: Final = 300
"""Value of a behaviour, as a number of branches. It is higher than the number of branches of any
scenario."""
_FORBIDDEN: Final = "InitContainerRestartPolicyForbidden"
_PROSE: Final = ("note", "why", "source", "tags")
_PROSE_LINES: Final = re.compile(rf"^  ({'|'.join(_PROSE)}): .*\n(?:   +.*\n)*", re.MULTILINE)

Feature = tuple[object, ...]


@attrs.frozen(eq=False)
class Vector:
    """Recorded vector: its text in the sample, and a function that replays it."""

    name: str
    text: str
    replay: Callable[[], object]
    expected: frozenset[Feature] = frozenset()
    """Features that follow from the vector itself, such as its configuration."""


@attrs.frozen
class VectorSet:
    """File of recorded vectors."""

    file: str
    budget: int
    """Largest size of the file's sample, in bytes."""
    read: Callable[[str], tuple[str, list[Vector]]]
    """Function that splits the file's text into the head of the sample and the vectors."""
    measured: tuple[str, ...]
    """Directories whose branches count as features."""


def chosen(
    vectors: Sequence[Vector], reached: Sequence[frozenset[Feature]], budget: int
) -> set[int]:
    """Return the indexes of the vectors to include in the sample. ``reached`` has the features of
    each vector."""
    counts: Counter[Feature] = Counter()
    found: set[int] = set()
    left = budget

    # The value is per byte, because one large vector can have the size of many small ones.
    def value(index: int) -> float:
        gain = sum(
            (_WORTH if each[0] == _BEHAVIOUR else 1) / (1 + counts[each])
            for each in reached[index]
            if counts[each] < ENOUGH
        )
        return gain / len(vectors[index].text)

    while candidates := [
        index
        for index, vector in enumerate(vectors)
        if index not in found and len(vector.text) <= left
    ]:
        best = max(candidates, key=lambda index: (value(index), -index))
        if not value(best):
            break
        found.add(best)
        counts.update(reached[best])
        left -= len(vectors[best].text)
    return found


def features(vectors: Sequence[Vector], measured: Sequence[str]) -> list[frozenset[Feature]]:
    """Replay each vector under branch coverage, and return the features that it reaches."""
    include = [str(ROOT / each / "*") for each in measured]
    cover = Coverage(data_file=None, branch=True, include=include, config_file=False)
    caches = [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]
    # Replay all vectors once without measuring. Otherwise imports at first use would count for the
    # first vector that causes them.
    for vector in vectors:
        vector.replay()
    cover.start()
    for number, vector in enumerate(vectors):
        # Clear the caches: a cached result would hide branches from all vectors after the first.
        for cache in caches:
            cache.cache_clear()
        cover.switch_context(str(number))
        vector.replay()
    cover.stop()
    data = cover.get_data()
    return [vector.expected | _branches(data, str(number)) for number, vector in enumerate(vectors)]


def _branches(data: CoverageData, context: str) -> frozenset[Feature]:
    data.set_query_context(context)
    return frozenset(
        (file, *arc) for file in data.measured_files() for arc in data.arcs(file) or ()
    )


# -- the files ---------------------------------------------------------------------------


def _scenarios(text: str) -> tuple[str, list[Vector]]:
    vectors = []
    for line in text.split("\n"):
        if line:
            scenario = {name: v for name, v in json.loads(line).items() if name not in _PROSE}
            vectors.append(
                Vector(
                    scenario["id"],
                    line if len(scenario) == len(json.loads(line)) else _json(scenario),
                    partial(admission.replay_scenario, scenario),
                    frozenset(_of_scenario(scenario)),
                )
            )
    return "", vectors


def _of_scenario(scenario: dict[str, Any]) -> Iterator[Feature]:
    """Iterate over the configuration and messages of a scenario, without names and numbers."""
    options = tuple(scenario["policy_options"] or ())
    yield "settings", scenario.get("kubelet"), scenario["policy"], scenario["scope"], *options
    for plugin in scenario["resources"].values():
        yield "preferred", scenario["policy"], plugin["preferred"], bool(plugin["allocate_error"])
    expect = scenario["expect"]
    texts = [expect.get("config_error"), *(step.get("message") for step in expect.get("steps", ()))]
    for text in filter(None, texts):
        yield "message", re.sub(r"\S*[\d/\"]\S*", "", text)


def _lively(text: str) -> tuple[str, list[Vector]]:
    scenarios = [json.loads(line) for line in text.split("\n") if line]
    return "", [
        Vector(
            scenario["id"],
            _json(scenario),
            partial(lively.replay_scenario, scenario),
            frozenset(_of_lively(scenario)),
        )
        for scenario in scenarios
        if scenario["id"] not in _UNEXPLAINED
    ]


def _of_lively(scenario: dict[str, Any]) -> Iterator[Feature]:
    """Iterate over the configuration, operations and messages of a lively scenario."""
    yield "settings", scenario["policy"], scenario["scope"], *(scenario["policy_options"] or ())
    for has in BEHAVIOURS:
        if has(scenario):
            yield _BEHAVIOUR, has.__name__
    steps = scenario["expect"].get("steps", ())
    for op, step in zip(scenario["ops"], steps, strict=False):
        kind = next(iter(op.keys() - {"lists", "no_hints"}))
        yield "op", kind, *(sorted(op[kind]) if isinstance(op[kind], dict) else ())
        texts = [step.get("message"), step.get("registered")]
        texts += [each.get("message") for each in step.get("readmitted", {}).values()]
        for text in filter(None, texts):
            yield "message", kind, re.sub(r"\S*[\d/\"]\S*", "", text)


def _dra(text: str) -> tuple[str, list[Vector]]:
    scenarios = [json.loads(line) for line in text.split("\n") if line]
    return "", [
        Vector(
            scenario["id"],
            _json({name: v for name, v in scenario.items() if name not in _PROSE}),
            partial(_replay_dra, scenario),
            frozenset(_of_dra(scenario)),
        )
        for scenario in scenarios
    ]


def _replay_dra(scenario: dict[str, Any]) -> None:
    for version in map(KubeletVersion.parse, ("1.37", "1.36", "1.34")):
        steps = expected_steps(scenario, version)
        if steps is not None:
            dra.replay_vector(scenario["id"], scenario, steps, version)


def _dra_allocate(text: str) -> tuple[str, list[Vector]]:
    problems = [json.loads(line) for line in text.splitlines() if line.strip()]
    return "", [
        Vector(
            problem["id"],
            _json({key: value for key, value in problem.items() if key not in _PROSE}),
            partial(_replay_problem, problem),
            frozenset((("error", _shape(problem["expect"].get("error", ""))),)),
        )
        for problem in problems
    ]


def _replay_problem(problem: dict[str, Any]) -> None:
    for version in ("1.37", "1.36"):
        profile = Profile.of(version, features=problem["features"])
        dra_allocate.Problem.of(problem).solve(profile)


def _shape(error: str) -> str:
    """Return an error text without names and numbers."""
    return re.sub(r"[a-z0-9.-]+/[a-z0-9./-]+|\d+", "N", error)


def _of_dra(scenario: dict[str, Any]) -> Iterator[Feature]:
    """Iterate over the operations and messages of a scenario of the DRA manager."""
    yield "settings", *scenario.get("gates", ()), len(scenario.get("kubelet", "default"))
    versions = ("expect_1.37", "expect_1.34")
    others = [step for version in versions for step in scenario.get(version, {}).values()]
    for op, step in zip(scenario["ops"], scenario["expect"], strict=True):
        yield "op", op["op"], *sorted(step)
    for step in [*scenario["expect"], *others]:
        if "error" in step:
            yield "message", re.sub(r"\S*[\d/\"]\S*", "", step["error"])


def _cel(text: str) -> tuple[str, list[Vector]]:
    rows = [json.loads(line) for line in text.split("\n") if line]
    rows = [row for row in rows if (row["actualCost"] or 0) <= _CHEAP]
    devices = cel.read_devices(FULL / CEL)
    return "", [
        Vector(
            row["id"],
            _json(row),
            partial(cel.replay_row, row, devices[row["device"]]),
            frozenset({("class", row["class"]), ("function", *_words(row["expression"]))}),
        )
        for row in rows
    ]


def _words(expression: str) -> list[str]:
    """Return the functions that an expression calls."""
    return sorted(set(re.findall(r"(\w+)\(", expression)))


def used_devices(cel_sample: str, devices: str) -> str:
    """Return the devices that the rows of the sample name."""
    names = {json.loads(line)["device"] for line in cel_sample.splitlines()}
    return _json({name: each for name, each in json.loads(devices).items() if name in names}) + "\n"


def _checkpoints(text: str) -> tuple[str, list[Vector]]:
    return "", [
        Vector(json.loads(line)["id"], line, partial(_replay_checkpoint, line))
        for line in text.split("\n")
        if line
    ]


def _replay_checkpoint(line: str) -> None:
    with NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        list(checkpoint.replay_file(Path(file.name)))


def _claims(text: str) -> tuple[str, list[Vector]]:
    """Split a YAML file into its rows. Comments at the top are left out."""
    text = _PROSE_LINES.sub("", text[text.index("format:") :])
    vectors = []
    for section, rows in re.findall(r"^(\w+):\n((?:[- ].*\n)+)", text, re.MULTILINE):
        for row in re.findall(r"^- .*\n(?:  .*\n)*", rows, re.MULTILINE):
            value = yaml.safe_load(row)
            vectors.append(
                Vector(
                    section,
                    row,
                    partial(_replay_claims, {section: value}),
                )
            )
    return f"format: {claims.FORMAT}\n", vectors


def _replay_claims(vectors: dict[str, Any]) -> None:
    list(claims.replay_vectors(vectors))


SETS: Final = (
    VectorSet("admission.jsonl", 420_000, _scenarios, ("devicemanager/core",)),
    VectorSet("versions.jsonl", 160_000, _scenarios, ("devicemanager/core",)),
    VectorSet("versions-edge.jsonl", 160_000, _scenarios, ("devicemanager/core",)),
    VectorSet("checkpoint.jsonl", 120_000, _checkpoints, ("checkpoint",)),
    VectorSet(CEL, 60_000, _cel, ("devicemanager/claims/cel",)),
    VectorSet("claims.yaml", 40_000, _claims, ("devicemanager/claims",)),
    VectorSet("claims-random.yaml", 140_000, _claims, ("devicemanager/claims",)),
    VectorSet("dra-manager.jsonl", 130_000, _dra, ("devicemanager/core/dra", "checkpoint/dra")),
    VectorSet(
        "dra-allocate.jsonl",
        120_000,
        _dra_allocate,
        ("devicemanager/claims/dra", "devicemanager/claims/core"),
    ),
    VectorSet(
        "lively.jsonl", 300_000, _lively, ("devicemanager/core", "devicemanager/kubelet/manager")
    ),
)


def sample(vector_set: VectorSet, text: str) -> str:
    """Return the sample of a file with recorded vectors. ``text`` is the text of the full file."""
    head, vectors = vector_set.read(text)
    found = chosen(vectors, features(vectors, vector_set.measured), vector_set.budget)
    if not head:
        return "".join(f"{vectors[index].text}\n" for index in sorted(found))
    sections = dict.fromkeys(vector.name for vector in vectors)
    for index in sorted(found):
        sections[vectors[index].name] = (sections[vectors[index].name] or "") + vectors[index].text
    return head + "".join(f"{name}:\n{rows}" for name, rows in sections.items() if rows)


def older_results(text: str, lively_sample: str) -> str:
    """Return the results of an older version for the sample. Only the shortest scenario with a
    forbidden sidecar has results. All other scenarios have null and are not replayed."""
    ids = {json.loads(line)["id"] for line in lively_sample.splitlines()}
    results = [each for each in map(json.loads, text.splitlines()) if each["id"] in ids]
    forbidden = [each for each in results if _FORBIDDEN in _json(each) and each["expect"]]
    shown = min(forbidden, key=lambda each: len(_json(each)))
    return "".join(
        f"{_json(each if each is shown else {**each, 'expect': None})}\n" for each in results
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the sample of every file of vectors."""
    parser = argparse.ArgumentParser(prog="python -m tools.vector_sample", description=__doc__)
    parser.add_argument(
        "--vectors", type=Path, default=FULL, metavar="DIR", help=f"full sets (default: {FULL})"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="only these sets (default: all)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    SAMPLE.mkdir(parents=True, exist_ok=True)
    for vector_set in [each for each in SETS if each.file in options.files or not options.files]:
        text = sample(vector_set, (options.vectors / vector_set.file).read_text(encoding="utf-8"))
        (SAMPLE / vector_set.file).write_text(text, encoding="utf-8")
        print(f"{vector_set.file}: {len(text.encode()):,} bytes", file=sys.stderr)
    devices = (options.vectors / CEL_DEVICES).read_text(encoding="utf-8")
    used = used_devices((SAMPLE / CEL).read_text(encoding="utf-8"), devices)
    (SAMPLE / CEL_DEVICES).write_text(used, encoding="utf-8")
    older = (options.vectors / OLDER).read_text(encoding="utf-8")
    text = older_results(older, (SAMPLE / "lively.jsonl").read_text(encoding="utf-8"))
    (SAMPLE / OLDER).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
