"""Routes of the kubelet's HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import anyio.to_thread
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from devicemanager.control.answer import Answer
from devicemanager.observe.metrics.exposition import CONTENT_TYPE
from devicemanager.observe.metrics.kubelet import resource_text
from devicemanager.observe.web import answers
from devicemanager.observe.web.health import Check, checks_of, live_checks
from devicemanager.observe.web.site import Site

__all__ = ["routes"]


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of one kubelet's HTTP endpoints."""
    kubelet = site.kubelet
    return [
        *_health("healthz", checks_of(kubelet)),
        *_health("livez", live_checks()),
        *_health("readyz", checks_of(kubelet)),
        _on_worker(site, "/metrics", CONTENT_TYPE, site.metrics.text),
        _on_worker(site, "/metrics/resource", CONTENT_TYPE, lambda: resource_text(kubelet)),
        _on_worker(site, "/pods", answers.JSON, lambda: answers.pods(kubelet)),
        _on_worker(site, "/configz", answers.JSON, lambda: answers.configuration(kubelet)),
    ]


def _health(name: str, checks: Sequence[Check]) -> list[BaseRoute]:
    # Without a worker thread, so that health checks respond even if all workers are busy.
    async def everything(request: Request) -> Answer:
        return answers.all_checks(name, checks, request)

    async def one(request: Request) -> Answer:
        return answers.one_check(checks, request.path_params["check"])

    return [Route(f"/{name}", everything), Route(f"/{name}/{{check}}", one)]


def _on_worker(site: Site, path: str, kind: str, body: Callable[[], bytes]) -> Route:
    async def endpoint(request: Request) -> Answer:
        # On a worker thread, because building a response can wait for the kubelet's lock.
        data = await anyio.to_thread.run_sync(body, limiter=site.workers)
        return Answer(HTTPStatus.OK, kind, data, request.scope["account"], answers.PRIVATE)

    return Route(path, endpoint)
