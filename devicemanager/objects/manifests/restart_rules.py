"""Read ``restartPolicyRules`` of a container.

Follows ``validateContainerRestartPolicy`` (pkg/apis/core/validation, v1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from devicemanager.core.pods import RestartRule
from devicemanager.objects.manifests.errors import FieldError, required, unsupported, wrong_type

_RESTART_ALL = "RestartAllContainers"
_ACTIONS = ("Restart", _RESTART_ALL)
_OPERATORS = ("In", "NotIn")


def read_restart_rules(rules: object) -> tuple[RestartRule, ...]:
    """Return the restart rules of a container. Raises FieldError for the first invalid field."""
    if rules is None:
        return ()
    if not isinstance(rules, list | tuple):
        raise wrong_type("restartPolicyRules", "a list", rules)
    return tuple(_read(rules))


def _read(rules: list[object] | tuple[object, ...]) -> Iterator[RestartRule]:
    for index, rule in enumerate(rules):
        try:
            yield _rule(rule)
        except FieldError as error:
            raise error.under(f"restartPolicyRules[{index}]") from None


def _rule(rule: object) -> RestartRule:
    if not isinstance(rule, Mapping):
        raise wrong_type("", "a mapping", rule)
    if rule.get("action") not in _ACTIONS:
        raise unsupported("action", rule.get("action"), *_ACTIONS)
    codes = rule.get("exitCodes")
    if not isinstance(codes, Mapping):
        raise required("exitCodes")
    if codes.get("operator") not in _OPERATORS:
        raise unsupported("exitCodes.operator", codes.get("operator"), *_OPERATORS)
    values = codes.get("values") or ()
    # ``isinstance`` would also accept booleans as numbers.
    if not isinstance(values, list | tuple) or not all(type(each) is int for each in values):
        raise wrong_type("exitCodes.values", "a list of numbers", values)
    restarts_all = rule["action"] == _RESTART_ALL
    return RestartRule(frozenset(values), codes["operator"] == "In", restarts_all)
