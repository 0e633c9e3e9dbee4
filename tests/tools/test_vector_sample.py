"""The choice of the sample of recorded vectors, and the sample in the repository."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.paths import FULL, SAMPLE
from tools.vector_sample import SETS, Vector, chosen, features


def vectors(**sizes: int) -> list[Vector]:
    return [Vector(name, "x" * size, list) for name, size in sizes.items()]


def reached(*names: str) -> list[frozenset[tuple[object, ...]]]:
    return [frozenset((letter,) for letter in each) for each in names]


def test_choice_prefers_features_per_byte():
    assert chosen(vectors(a=10, b=100), reached("xy", "xyz"), 10) == {0}


def test_choice_covers_every_feature_within_the_budget():
    assert chosen(vectors(a=10, b=10, c=10), reached("xy", "x", "z"), 20) == {0, 2}


def test_choice_skips_what_does_not_fit():
    assert chosen(vectors(a=30, b=10), reached("xyz", "x"), 20) == {1}


def test_choice_stops_when_every_feature_is_covered_often_enough():
    names = [f"v{number}" for number in range(9)]
    assert len(chosen(vectors(**dict.fromkeys(names, 10)), reached(*["x"] * 9), 1000)) == 4


def test_features_are_the_branches_a_vector_takes():
    lines = (SAMPLE / "admission.jsonl").read_text().splitlines()
    by_policy = {json.loads(line)["policy"]: line for line in lines}
    _, found = SETS[0].read(f"{by_policy['none']}\n{by_policy['restricted']}\n")
    none, restricted = features(found, SETS[0].measured)

    def modules(of):
        return {each[0].rpartition("/")[2] for each in of if str(each[0]).endswith(".py")}

    assert "merging.py" in modules(restricted) - modules(none)
    assert "ledger.py" in modules(none) & modules(restricted)


def test_sample_is_small():
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 2_000_000


@pytest.mark.parametrize("name", [each.file for each in SETS])
def test_sample_is_part_of_the_full_set(name):
    if not (FULL / name).exists():
        pytest.skip("the full sets of vectors are not on this machine")
    sampled, full = (rows(directory / name) for directory in (SAMPLE, FULL))
    assert 0 < len(sampled) < len(full)
    assert [row for row in sampled if row not in full] == []


def rows(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        values = [json.loads(line) for line in text.split("\n") if line]
    else:
        sections = yaml.load(text, yaml.CSafeLoader)  # 20 times as fast
        values = [row for rows in sections.values() if isinstance(rows, list) for row in rows]
    return [without_prose(value) for value in values]


def without_prose(row):
    if not isinstance(row, dict):
        return row
    return {k: v for k, v in row.items() if k not in {"note", "why", "source", "tags"}}
