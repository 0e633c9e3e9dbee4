"""Who can send requests over TCP.

Browsers can reach 127.0.0.1, too. A page of any site could send requests, and a domain name that
its owner points at 127.0.0.1 would make our answers readable for that site. Therefore Host and
Origin must match the listener, and the control API also needs its token. A unix socket needs
no check: its mode decides who can connect.
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
    """Where to listen: an IP address of this host and a port (0: any)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> TcpAddress:
        """Parse ``127.0.0.1:8001`` or ``[::1]:8001``. Raises ValueError with one line."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                f"invalid address {text!r}: expected ADDRESS:PORT, such as 127.0.0.1:8001"
            )
        bare = host.removeprefix("[").removesuffix("]")
        # The only name: any other would have to be resolved, and could change its address.
        bare = "127.0.0.1" if bare == "localhost" else bare
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            raise ValueError(
                f"invalid IP address {host!r}: use one of this host, such as 127.0.0.1"
            ) from None
        if (address.version == 6) is not host.startswith("["):
            raise ValueError(
                f"invalid address {text!r}: an IPv6 address needs brackets, as in "
                "[::1]:8001, and no other"
            )
        return cls(str(address), int(port))

    @classmethod
    def allowed(cls, text: str, allow_remote: bool) -> TcpAddress:
        """Parse an address; raise NotLoopback if other hosts can reach it, unless
        ``allow_remote``."""
        address = cls.parse(text)
        # Rejected by default: the token would cross the network unencrypted.
        if not address.is_loopback and not allow_remote:
            raise NotLoopback(
                f"{address} can be reached from other hosts, and nothing is encrypted: use "
                "127.0.0.1"
            )
        return address

    @classmethod
    def of(cls, listener: socket.socket) -> TcpAddress:
        """Return the address of a socket, with its actual port."""
        host, port = listener.getsockname()[:2]
        return cls(host, port)

    def takes(self, host: str, port: int) -> bool:
        """True if a listener on this address accepts connections to that one."""
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
    """Required for requests that control something; None rejects all of them."""

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError unless the request is for this listener and not from a page of
        another site. ``headers`` have names in lower case."""
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin.removeprefix("http://")):
            raise _from_page()
        # Requests for what a page embeds, such as an image, have no Origin.
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_elsewhere and headers.get("sec-fetch-mode") != "navigate":
            raise _from_page()

    def check_token(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError unless the request has the token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given, wanted = token.strip().encode(), (self.token or "").encode()
        shown = given if scheme.lower() == "bearer" else b""
        # In constant time, so that the time of an answer reveals nothing about the token.
        if wanted and hmac.compare_digest(shown, wanted):
            return
        what = (
            "wrong token: use the one in control.token in the root, which is new with each start"
            if shown
            else "the header `Authorization: Bearer TOKEN` is missing: the token is in "
            "control.token in the root"
        )
        raise HttpError(HTTPStatus.UNAUTHORIZED, "unauthorized", what)

    def _check_host(self, host: str) -> None:
        if self._is_ours(host):
            return
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"the header Host must be {self.address}: any domain name can point here",
        )

    def _is_ours(self, host: str) -> bool:
        address = self.address
        if not address.is_loopback:
            # The user allowed other hosts. Clients can use any of this host's addresses, but
            # still no domain name.
            return _is_address(host, address.port)
        # Users type localhost, too; a site cannot make it point elsewhere.
        return host in (str(address), f"localhost:{address.port}")


@attrs.frozen
class Gate:
    """The rules of all TCP listeners of one server."""

    listeners: tuple[Access, ...] = ()

    def check_sender(self, scope: Scope) -> None:
        """Raise HttpError for a request over TCP that is not for its listener or that comes
        from a page of another site."""
        access = self._access(scope)
        if access is not None:
            access.check_sender(_headers(scope))

    def check(self, scope: Scope) -> None:
        """Check the sender, and over TCP the token."""
        access = self._access(scope)
        if access is not None:
            headers = _headers(scope)
            access.check_sender(headers)
            access.check_token(headers)

    def _access(self, scope: Scope) -> Access | None:
        """Return the rules for a request; None for a unix socket."""
        server = scope["server"]
        # uvicorn reports a unix socket as its path and no port.
        if server is not None and server[1] is None:
            return None
        # By the address of the connection and not by the Host, which the client chooses.
        for access in self.listeners:
            if server is not None and access.address.takes(*server):
                return access
        raise HttpError(HTTPStatus.FORBIDDEN, "forbidden", "no listener has this address")


def _from_page() -> HttpError:
    # The same text for all causes: a page must not learn which check it failed.
    return HttpError(HTTPStatus.FORBIDDEN, "forbidden", "requests of web pages are rejected")


def _headers(scope: Scope) -> dict[str, str]:
    # Header bytes have no encoding; latin-1 maps every byte to one character.
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _is_address(host: str, port: int) -> bool:
    try:
        return TcpAddress.parse(host).port == port
    except ValueError:
        return False
