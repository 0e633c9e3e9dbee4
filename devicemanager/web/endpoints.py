"""What the kubelet's own HTTP server answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from devicemanager.apiobjects.pods import pod_list, pod_object
from devicemanager.apiobjects.podstatus import status_object
from devicemanager.control.sending import Answer
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.metrics.exposition import CONTENT_TYPE
from devicemanager.web.checks import checks_of, live_checks
from devicemanager.web.configz import kubelet_configuration
from devicemanager.web.health import Check, Told, told_all, told_one
from devicemanager.web.site import Site

__all__ = ["NOSNIFF", "TEXT", "routes"]

TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
NOSNIFF: Final = ((b"x-content-type-options", b"nosniff"),)


def routes(site: Site) -> Sequence[BaseRoute]:
    """The kubelet's endpoints."""
    kubelet, metrics = site.kubelet, site.metrics
    return [
        *_health("healthz", checks_of(kubelet)),
        *_health("livez", live_checks()),
        *_health("readyz", checks_of(kubelet)),
        _on_worker(site, "/metrics", CONTENT_TYPE, metrics.text),
        _on_worker(site, "/metrics/resource", CONTENT_TYPE, metrics.resource_text),
        _on_worker(site, "/pods", _JSON, lambda: _json(_pods(kubelet))),
        _on_worker(site, "/configz", _JSON, lambda: _json(kubelet_configuration(kubelet.settings))),
    ]


def _health(name: str, checks: Sequence[Check]) -> list[BaseRoute]:
    """No worker is needed: a kubelet whose threads all wait still tells that it is alive."""

    async def everything(request: Request) -> Answer:
        query = request.query_params
        return _told(
            told_all(name, checks, verbose="verbose" in query, exclude=query.getlist("exclude"))
        )

    async def one(request: Request) -> Answer:
        wanted = request.path_params["check"]
        for check in checks:
            if check.name == wanted:
                return _told(told_one(check))
        names = ", ".join(check.name for check in checks)
        return _told(Told(HTTPStatus.NOT_FOUND, f"no such check: {names} are there\n"))

    return [Route(f"/{name}", everything), Route(f"/{name}/{{check}}", one)]


def _told(told: Told) -> Answer:
    return Answer(told.status, TEXT, told.text.encode(), headers=NOSNIFF)


def _on_worker(site: Site, path: str, kind: str, body: Callable[[], bytes]) -> Route:
    async def endpoint(request: Request) -> Answer:
        made = await anyio.to_thread.run_sync(body, limiter=site.workers)
        return Answer(HTTPStatus.OK, kind, made, request.scope["account"], NOSNIFF)

    return Route(path, endpoint)


def _pods(kubelet: MockKubelet) -> dict[str, Any]:
    now, node = kubelet.clock.time(), kubelet.settings.node_name
    return pod_list(
        pod_object(
            each.pod,
            status_object(each.pod.uid, each.status, now=now),
            node=node,
            deletion_grace=each.deletion_grace,
        )
        for each in kubelet.telemetry.pods()
    )


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
