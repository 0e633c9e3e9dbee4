"""Get all checks of PodResources clients, or some of them by ID."""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.conformance.clients import checks
from devicemanager.conformance.clients.registry import client_check_ids
from devicemanager.conformance.outcomes import CheckError
from devicemanager.conformance.registry import CLIENT_FAMILY, Check

__all__ = ["client_checks", "select_client_checks"]


def client_checks() -> tuple[Check, ...]:
    """Return all checks of PodResources clients, sorted by number."""
    return tuple(getattr(checks, id_.lower()) for id_ in client_check_ids())


def select_client_checks(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """Return the checks of PodResources clients that are in ``only`` and not in ``skip``.

    If ``only`` is empty, return all checks that are not in ``skip``. Both arguments contain IDs of
    checks, such as C01, or the letter C for all checks. Raises CheckError for any other name.
    """
    every, chosen, left_out = client_checks(), set(only), set(skip)
    for name in chosen | left_out:
        if name != CLIENT_FAMILY and name not in client_check_ids():
            raise CheckError(
                f"unknown check {name!r}: with --client, use {every[0].id} to {every[-1].id}"
            )
    return tuple(
        each
        for each in every
        if (not chosen or chosen & {each.id, each.family}) and not left_out & {each.id, each.family}
    )
