"""Response bodies for one kubelet. ``HttpServer`` and ``NodesServer`` both use them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request

from devicemanager.control.answer import Answer
from devicemanager.kubelet.pods.usage import PodStats, Used
from devicemanager.kubelet.telemetry import NodeInfo
from devicemanager.objects.status.podstatus import pod_list, pod_object, status_object
from devicemanager.objects.status.times import timestamp
from devicemanager.observe.web import health

__all__ = [
    "JSON", "PRIVATE", "TEXT", "all_checks", "configuration", "one_check", "plain_text", "pods",
    "summary",
]  # fmt: skip

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
PRIVATE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response. They forbid browsers to guess the type of the response, and to load
the response into another site."""


def all_checks(name: str, checks: Sequence[health.Check], request: Request) -> Answer:
    """Return the response for the group ``name`` of health checks. The request's query can have the
    options ``verbose`` and ``exclude``."""
    # As in ``healthz`` of k8s.io/apiserver, ``verbose`` counts if it is present, with any value.
    query = request.query_params
    return plain_text(
        *health.group_result(
            name, checks, verbose="verbose" in query, exclude=query.getlist("exclude")
        )
    )


def one_check(checks: Sequence[health.Check], wanted: str) -> Answer:
    """Return the response for the health check named ``wanted``; 404 for an unknown name."""
    for check in checks:
        if check.name == wanted:
            return plain_text(*health.check_result(check))
    names = ", ".join(check.name for check in checks)
    return plain_text(HTTPStatus.NOT_FOUND, f"unknown check: use one of {names}\n")


def plain_text(status: HTTPStatus, text: str) -> Answer:
    """Return a response with plain text."""
    return Answer(status, TEXT, text.encode(), headers=PRIVATE)


def pods(kubelet: NodeInfo) -> bytes:
    """Return the kubelet's pods as a v1 PodList in JSON."""
    # One time for all pods. It is the kubelet's time, which can be a manual clock.
    now, node = kubelet.clock.time(), kubelet.settings.node_name
    return msgspec.json.encode(
        pod_list(
            pod_object(
                each.pod,
                status_object(each.pod.uid, each.status, now=now),
                node=node,
                deletion_grace=each.deletion_grace,
                deletion_time=each.deletion_time,
            )
            for each in kubelet.telemetry.pods()
        )
    )


def summary(kubelet: NodeInfo) -> bytes:
    """Return the body of ``/stats/summary`` in JSON: CPU and memory that the node and its pods use
    (``Summary``, k8s.io/kubelet/pkg/apis/stats/v1alpha1).

    If the node has no usage values, the body has only the node's name and an empty list of pods.
    """
    now, name = kubelet.clock.time(), kubelet.settings.node_name
    stats = kubelet.telemetry.usage(now)
    node: dict[str, Any] = {"nodeName": name}
    if stats is None:
        return msgspec.json.encode({"node": node, "pods": []})
    at = timestamp(now)
    pods = [_pod_stats(each, at) for each in stats.pods]
    return msgspec.json.encode({"node": node | _used(stats.used, at), "pods": pods})


def _pod_stats(stats: PodStats, at: str) -> dict[str, Any]:
    pod, start = stats.pod, stats.start_time
    return {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": str(pod.uid)},
        "startTime": None if start is None else timestamp(start),
        "containers": [
            {"name": each.name, "startTime": timestamp(each.started_at), **_used(each.used, at)}
            for each in stats.containers
        ],
        **_used(stats.used, at),
    }


def _used(used: Used, at: str) -> dict[str, Any]:
    return {
        "cpu": {
            "time": at,
            "usageNanoCores": round(used.cores * 1e9),
            "usageCoreNanoSeconds": round(used.cpu_seconds * 1e9),
        },
        # The mock has one amount of memory, so usage and working set are equal.
        "memory": {"time": at, "usageBytes": used.memory, "workingSetBytes": used.memory},
    }


def configuration(kubelet: NodeInfo) -> bytes:
    """Return the body of ``/configz`` in JSON: the fields of ``KubeletConfiguration``
    (kubelet.config.k8s.io/v1beta1) that a mock kubelet has."""
    settings = kubelet.settings
    fields: dict[str, Any] = {
        "topologyManagerPolicy": settings.topology_policy,
        "topologyManagerScope": settings.topology_scope,
        "topologyManagerPolicyOptions": dict(settings.topology_options),
        "featureGates": dict(settings.feature_gates),
    }
    # As in the kubelet's JSON, empty maps are omitted.
    present = {name: value for name, value in fields.items() if value}
    return msgspec.json.encode({"kubeletconfig": present})
