"""The health checks of ``/healthz``, ``/livez`` and ``/readyz``, and the text of their results.

The format is that of ``k8s.io/apiserver/pkg/server/healthz`` (v1.36), which the kubelet uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import attrs

from devicemanager.core.versions.behaviour import HealthCheck
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.telemetry import NodeInfo

__all__ = ["Check", "check_result", "checks_of", "group_result", "live_checks", "node_checks"]

_Result = tuple[HTTPStatus, str]


@attrs.frozen
class Check:
    """A named health check."""

    name: str
    failure: Callable[[], str]
    """Function that returns the problem in one line, or an empty text if the check passes."""


# -- the checks of a mock kubelet --------------------------------------------------------


def live_checks() -> tuple[Check, ...]:
    """Return the health checks that pass whenever the server responds."""
    return (Check("ping", lambda: ""), Check("log", lambda: ""))


def node_checks(kubelet: NodeInfo) -> tuple[Check, ...]:
    """Return the health checks that kubelets of all versions have."""

    # A stopped real kubelet does not respond. This server runs on while the kubelet is stopped.
    def syncloop() -> str:
        return "" if kubelet.is_serving else "the kubelet is stopped"

    return (*live_checks(), Check("syncloop", syncloop))


def checks_of(kubelet: MockKubelet) -> tuple[Check, ...]:
    """Return the health checks of a kubelet, which depend on its version."""
    checks = node_checks(kubelet)
    if kubelet.settings.behaviour.health_check is HealthCheck.NONE:
        return checks
    return (*checks, Check("device-plugin", kubelet.telemetry.registration_failure))


# -- the text of results -----------------------------------------------------------------


def check_result(check: Check) -> _Result:
    """Return HTTP status and text for one check. If the check fails, the text contains the
    cause."""
    failure = check.failure()
    if failure:
        return _failed(f"internal server error: {failure}\n")
    return HTTPStatus.OK, "ok"


def group_result(
    name: str, checks: Sequence[Check], *, verbose: bool = False, exclude: Sequence[str] = ()
) -> _Result:
    """Return HTTP status and text for all checks of the group ``name``, such as ``healthz``.

    If a check fails, the text lists all checks, without the causes of failures. If all checks pass,
    the text lists them only with ``verbose``. Checks in ``exclude`` are skipped.
    """
    # All checks run, even after a failure, because the text lists the result of each check.
    lines, failed = [], False
    for check in checks:
        if check.name in exclude:
            lines.append(f"[+]{check.name} excluded: ok\n")
        elif check.failure():
            failed = True
            lines.append(f"[-]{check.name} failed: reason withheld\n")
        else:
            lines.append(f"[+]{check.name} ok\n")
    unknown = sorted(set(exclude) - {check.name for check in checks})
    if unknown:
        quoted = ",".join(f'"{each}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}\n")
    if failed:
        return _failed("".join(lines) + f"{name} check failed\n")
    return HTTPStatus.OK, "".join(lines) + f"{name} check passed\n" if verbose else "ok"


def _failed(text: str) -> _Result:
    return HTTPStatus.INTERNAL_SERVER_ERROR, text
