"""Every kind of fault names an effect, and every effect has code at its injection point only."""

from __future__ import annotations

import ast

import pytest

from devicemanager.faults import KINDS
from devicemanager.faults.injection_point import Effect, InjectionPoint, implements
from tests.paths import ROOT


def test_every_effect_belongs_to_a_kind() -> None:
    assert {kind.effect for kind in KINDS.values()} == set(Effect)


def test_every_injection_point_declares_its_effects_once() -> None:
    """``implements`` then checks at import that none is missing."""
    declared = [
        ast.unparse(node.args[0])
        for path in sorted((ROOT / "devicemanager").rglob("*.py"))
        # Most modules need not be parsed.
        if "implements(" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "implements"
    ]
    points = [f"InjectionPoint.{point.name}" for point in InjectionPoint]
    assert sorted(declared) == sorted([*points, "None"])


def test_implements_rejects_a_missing_effect() -> None:
    """This is what happens to a new effect without code, when the module is imported."""
    with pytest.raises(
        TypeError, match=r"^no code for Effect\.DELAY_CHECKPOINT at injection point checkpoint$"
    ):
        implements(InjectionPoint.CHECKPOINT, {Effect.FAIL_CHECKPOINT: print})


def test_implements_rejects_an_effect_of_another_point() -> None:
    effects = {Effect.FAIL_CHECKPOINT, Effect.DELAY_CHECKPOINT, Effect.RESTART}
    text = r"^Effect\.RESTART cannot fire at injection point checkpoint$"
    with pytest.raises(TypeError, match=text):
        implements(InjectionPoint.CHECKPOINT, effects)


@pytest.mark.parametrize("name", KINDS)
def test_actions_have_no_injection_point(name: str) -> None:
    kind = KINDS[name]
    assert kind.is_action is (kind.point is None)
    assert not kind.ends_process or kind.is_action
