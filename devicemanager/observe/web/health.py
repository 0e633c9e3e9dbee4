"""``/healthz``, ``/livez`` and ``/readyz``: named checks, and how their outcome is told.

The form is that of ``k8s.io/apiserver/pkg/server/healthz`` (v1.36), which the kubelet uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import attrs

__all__ = ["Check", "Told", "told_all", "told_one"]


@attrs.frozen
class Check:
    """One thing that is well or not."""

    name: str
    failure: Callable[[], str]
    """What is wrong, in one line; empty if nothing is."""


@attrs.frozen
class Told:
    """An answer."""

    status: HTTPStatus
    text: str


def told_one(check: Check) -> Told:
    """The answer for a check alone: here the cause is told."""
    failure = check.failure()
    if failure:
        return _failed(f"internal server error: {failure}\n")
    return Told(HTTPStatus.OK, "ok")


def told_all(
    name: str, checks: Sequence[Check], *, verbose: bool = False, exclude: Sequence[str] = ()
) -> Told:
    """The answer for all of them; ``name`` is that of the group, such as ``healthz``.

    A failure names every check, but no cause. ``exclude`` names checks that are left out.
    """
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
    return Told(HTTPStatus.OK, "".join(lines) + f"{name} check passed\n" if verbose else "ok")


def _failed(text: str) -> Told:
    return Told(HTTPStatus.INTERNAL_SERVER_ERROR, text)
