"""What is answered of one kubelet, whoever serves it."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request

from devicemanager.control.answer import Answer
from devicemanager.kubelet.telemetry import NodeInfo
from devicemanager.objects.status.podstatus import pod_list, pod_object, status_object
from devicemanager.observe.web import health
from devicemanager.observe.web.configz import kubelet_configuration

__all__ = ["JSON", "NOSNIFF", "TEXT", "all_checks", "configuration", "one_check", "pods", "said"]

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
NOSNIFF: Final = ((b"x-content-type-options", b"nosniff"),)


def all_checks(name: str, checks: Sequence[health.Check], request: Request) -> Answer:
    """The group ``name`` of checks, as the request wants to be told."""
    query = request.query_params
    told = health.told_all(
        name, checks, verbose="verbose" in query, exclude=query.getlist("exclude")
    )
    return said(told.status, told.text)


def one_check(checks: Sequence[health.Check], wanted: str) -> Answer:
    """One of them by its name."""
    for check in checks:
        if check.name == wanted:
            told = health.told_one(check)
            return said(told.status, told.text)
    names = ", ".join(check.name for check in checks)
    return said(HTTPStatus.NOT_FOUND, f"no such check: {names} are there\n")


def said(status: HTTPStatus, text: str) -> Answer:
    """Plain text."""
    return Answer(status, TEXT, text.encode(), headers=NOSNIFF)


def pods(kubelet: NodeInfo) -> bytes:
    """A v1 PodList as JSON."""
    now, node = kubelet.clock.time(), kubelet.settings.node_name
    return msgspec.json.encode(
        pod_list(
            pod_object(
                each.pod,
                status_object(each.pod.uid, each.status, now=now),
                node=node,
                deletion_grace=each.deletion_grace,
            )
            for each in kubelet.telemetry.pods()
        )
    )


def configuration(kubelet: NodeInfo) -> bytes:
    """Its configuration as JSON."""
    return msgspec.json.encode(kubelet_configuration(kubelet.settings))
