"""What the kubelet's own HTTP server answers."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from devicemanager.control.sending import Answer
from devicemanager.web.checks import live_checks, ready_checks
from devicemanager.web.health import Check, Told, told_all, told_one
from devicemanager.web.site import Site

__all__ = ["TEXT", "routes"]

TEXT: Final = "text/plain; charset=utf-8"
_NOSNIFF: Final = ((b"x-content-type-options", b"nosniff"),)


def routes(site: Site) -> Sequence[BaseRoute]:
    """The kubelet's endpoints."""
    ready = ready_checks(site.kubelet)
    return [
        *_health("healthz", ready),
        *_health("livez", live_checks()),
        *_health("readyz", ready),
    ]


def _health(name: str, checks: Sequence[Check]) -> list[BaseRoute]:
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
    return Answer(told.status, TEXT, told.text.encode(), headers=_NOSNIFF)
