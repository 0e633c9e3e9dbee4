"""Servers of the kubelet: the control API, HTTP and PodResources."""

from __future__ import annotations

from tools.harness.planted import planted, replace


@planted("silent clients stay connected")
def _silent() -> None:
    from devicemanager.control import http_server

    replace(http_server._Connection._wait_for_request, lambda self: None)


@planted("unread responses are not counted")
def _backlog() -> None:
    from podresources import backlog

    replace(backlog.Backlog.add, lambda self, call, size: True)


@planted("the Host header is not checked")
def _host() -> None:
    from devicemanager.control import access

    replace(access.Access._check_host, lambda self, host: None)
