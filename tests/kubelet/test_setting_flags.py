"""The flags of a kubelet's settings."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from devicemanager.kubelet.setting_flags import FLAGS, Flag
from devicemanager.kubelet.settings import Settings

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SECONDS: dict[str, Any] = {"metavar": "SECONDS", "kind": float, "least": 0}
TABLE: dict[str, dict[str, Any]] = {
    "--kubelet-version": {"group": "version", "metavar": "VERSION", "default": "1.37"},
    "--feature-gates": {
        "group": "version",
        "metavar": "NAME=true|false[,...]",
        "repeated": True,
    },
    "--topology-policy": {
        "group": "topology",
        "metavar": "POLICY",
        "default": "none",
        "choices": POLICIES,
    },
    "--topology-scope": {
        "group": "topology",
        "metavar": "SCOPE",
        "default": "container",
        "choices": ("container", "pod"),
    },
    "--topology-option": {
        "group": "topology",
        "field": "topology_options",
        "metavar": "NAME=VALUE",
        "repeated": True,
    },
    "--strict": {"group": "admission"},
    "--declare": {
        "group": "admission",
        "field": "declared_resources",
        "metavar": "RESOURCE",
        "repeated": True,
    },
    "--shuffle-seed": {"group": "admission", "metavar": "N", "kind": int},
    "--quirk": {"group": "admission", "field": "quirks", "metavar": "NAME", "repeated": True},
    "--wait-for-plugin": {"group": "serving", **SECONDS, "default": "0"},
    "--grace-period": {"group": "serving", **SECONDS, "default": "300"},
    "--max-list-bytes": {
        "group": "serving",
        "metavar": "N",
        "kind": int,
        "least": -1,
        "default": "4194304",
    },
    "--durability": {
        "group": "serving",
        "metavar": "LEVEL",
        "default": "kubelet",
        "choices": ("process", "kubelet", "power"),
    },
    "--node": {"group": "serving", "field": "node_name", "metavar": "NAME", "default": "mock"},
    "--pod-resources-qps": {
        "group": "serving",
        "metavar": "N",
        "kind": float,
        "least": 0.001,
        "default": "100",
        "off": "no-rate-limit",
    },
}
"""Fields of each flag that differ from those of a flag without a value; ``field`` is derived from
the flag if it is missing."""


def test_table_has_all_flags_in_order() -> None:
    assert [flag.option for flag in FLAGS] == list(TABLE)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.option)
def test_flag_sets_its_field(flag: Flag) -> None:
    wanted = {"metavar": "", "field": flag.option[2:].replace("-", "_"), **TABLE[flag.option]}
    expected = {**Flag("", "", "", flag.help, name=flag.name)._asdict(), **wanted}
    assert flag._asdict() == expected
    assert flag.field in attrs.fields_dict(Settings)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.option)
def test_help_is_part_of_a_sentence(flag: Flag) -> None:
    assert flag.help[0].islower() and not flag.help.endswith(".") and "\n" not in flag.help


def test_flag_without_a_name_has_the_name_of_its_field() -> None:
    assert Flag("grace_period", "", "", "").option == "--grace-period"
    assert Flag("grace_period", "", "", "", name="grace").option == "--grace"
