"""Histories of a node whose plugins are programs."""

from __future__ import annotations

import sys

from tools.differential import ours
from tools.differential.generating.real import RESOURCES, histories
from tools.differential.scenarios import is_real

COMMAND = (
    f"{sys.executable} -m devicemanager simulate --directory $DIRECTORY --plugin-name $NAME"
    " --resource-name real.example/$NAME --number-devices $COUNT"
)


def test_history_depends_only_on_seed_and_number():
    first, second = (list(histories(COMMAND, 7, 20, 37)) for _ in range(2))
    assert first == second and all(map(is_real, first))
    kinds = {kind for each in first for step in each["steps"] for kind in step.keys() - {"lists"}}
    assert kinds == {"admit", "start", "finish", "delete", "stop", "register", "grace", "restart"}


def test_program_is_killed_and_comes_back():
    pod = {
        "uid": "p",
        "containers": [{"name": "main", "limits": {"real.example/two": RESOURCES["two"]}}],
        "init_containers": [],
    }
    [history] = histories(COMMAND, 7, 1, 37)
    plugin = {
        "program": [
            word.replace("$NAME", "two").replace("$COUNT", "2") for word in COMMAND.split()
        ],
        "devices": None,
    }
    registration = {"resource": "real.example/two", **plugin}
    steps = [
        {"admit": pod},
        {"stop": "real.example/two"},
        {"restart": {"before": [registration]}},
        {"start": "p"},
    ]
    scenario = {**history, "resources": {"real.example/two": plugin}, "steps": steps}
    [run] = ours.play(scenario, "1.36.3")["runs"]
    admitted, stopped, restarted, started = run["steps"]
    assert admitted["admit"] and admitted["allocatable"] == {"real.example/two": 2}
    assert stopped["allocatable"] == {"real.example/two": 0}
    assert restarted["readmitted"]["p"]["admit"]
    assert restarted["allocatable"] == {"real.example/two": 2}
    assert set(started["started"]) == {"main"} and "error" not in str(started["started"])
