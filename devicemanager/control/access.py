"""Who may ask over TCP.

Browsers reach 127.0.0.1, too: a page of any site could ask, and a name that its owner lets
point there would make the page ours. So the Host and the Origin have to fit, and for the control
API the token as well.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from http import HTTPStatus

import attrs
from starlette.types import Scope

from devicemanager.control.errors import HttpError

__all__ = ["Access", "Gate", "NotLoopback", "TcpAddress"]


class NotLoopback(ValueError):
    """An address that other hosts can reach."""


@attrs.frozen
class TcpAddress:
    """Where to listen: an address of this host, not a name, and a port (0: any)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> TcpAddress:
        """From ``127.0.0.1:8001`` or ``[::1]:8001``. Raises ValueError with one line."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is no address with a port, such as 127.0.0.1:8001")
        bare = host.removeprefix("[").removesuffix("]")
        bare = "127.0.0.1" if bare == "localhost" else bare
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            raise ValueError(
                f"{host!r} is no IP address: give one of this host, such as 127.0.0.1"
            ) from None
        if (address.version == 6) is not host.startswith("["):
            raise ValueError(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:8001")
        return cls(str(address), int(port))

    @classmethod
    def allowed(cls, text: str, allow_remote: bool) -> TcpAddress:
        """``parse``, and NotLoopback for an address that other hosts can reach, unless
        ``allow_remote``."""
        address = cls.parse(text)
        if not address.is_loopback and not allow_remote:
            raise NotLoopback(
                f"{address} can be reached from other hosts, and nothing is encrypted: use "
                "127.0.0.1"
            )
        return address

    @classmethod
    def of(cls, listener: socket.socket) -> TcpAddress:
        """Where a socket listens, with the port that it got."""
        host, port = listener.getsockname()[:2]
        return cls(host, port)

    def takes(self, host: str, port: int) -> bool:
        """Whether a connection to there comes to a listener of this address."""
        is_any = ipaddress.ip_address(self.host).is_unspecified
        return port == self.port and (is_any or host == self.host)

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Access:
    """The rules of one TCP listener."""

    address: TcpAddress
    token: str | None = attrs.field(default=None, repr=False)
    """What a request that steers the kubelet has to show; None: none may."""

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError unless the request is meant for this listener and no other site's
        page makes it. ``headers`` have names in lower case."""
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin.removeprefix("http://")):
            raise _of_a_page()
        # No Origin comes with what a page of another site embeds, such as a picture.
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_elsewhere and headers.get("sec-fetch-mode") != "navigate":
            raise _of_a_page()

    def check_token(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError unless the request has the token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given, wanted = token.strip().encode(), (self.token or "").encode()
        shown = given if scheme.lower() == "bearer" else b""
        if wanted and hmac.compare_digest(shown, wanted):
            return
        what = (
            "the token is not that of control.token in the root, which is new with each start"
            if shown
            else "the header `Authorization: Bearer TOKEN` is needed; the token is in "
            "control.token in the root"
        )
        raise HttpError(HTTPStatus.UNAUTHORIZED, "unauthorized", what)

    def _check_host(self, host: str) -> None:
        if self._is_ours(host):
            return
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"the header Host has to be {self.address}: a name may lead anybody here",
        )

    def _is_ours(self, host: str) -> bool:
        address = self.address
        if not address.is_loopback:
            # Told twice to listen there: under which of its addresses it is asked is open,
            # but a name is still none.
            return _is_address(host, address.port)
        return host in (str(address), f"localhost:{address.port}")


@attrs.frozen
class Gate:
    """Who may ask, over all listeners of one server. On a unix socket its mode says it."""

    doors: tuple[Access, ...] = ()

    def check_sender(self, scope: Scope) -> None:
        """Raise HttpError for a request over TCP that is not meant for the listener it came
        to, or that a page of another site makes."""
        door = self._door(scope)
        if door is not None:
            door.check_sender(_headers(scope))

    def check(self, scope: Scope) -> None:
        """The same, and over TCP the token is needed."""
        door = self._door(scope)
        if door is not None:
            headers = _headers(scope)
            door.check_sender(headers)
            door.check_token(headers)

    def _door(self, scope: Scope) -> Access | None:
        """None for a unix socket."""
        server = scope["server"]
        if server is not None and server[1] is None:
            return None
        for door in self.doors:
            if server is not None and door.address.takes(*server):
                return door
        raise HttpError(HTTPStatus.FORBIDDEN, "forbidden", "nobody listens there")


def _of_a_page() -> HttpError:
    return HttpError(HTTPStatus.FORBIDDEN, "forbidden", "requests of web pages are rejected")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _is_address(host: str, port: int) -> bool:
    try:
        return TcpAddress.parse(host).port == port
    except ValueError:
        return False
