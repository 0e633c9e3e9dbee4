"""Access rules for requests over TCP.

A browser can reach 127.0.0.1, so a page of any web site could send requests to it. The owner of a
site can also point a domain name at 127.0.0.1; the browser would then let the page read the
responses. Therefore the headers Host and Origin must match the listener, and the control API also
requires its token. A unix socket needs no check: its file mode decides who can connect.
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
    """Error for a listen address that other hosts can reach, if remote access is not allowed."""


@attrs.frozen
class TcpAddress:
    """An IP address of this host and a port to listen on; port 0 stands for any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> TcpAddress:
        """Parse an address such as ``127.0.0.1:8001``, ``localhost:8001`` or ``[::1]:8001``.

        Raises ValueError with a one-line message for any other form.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                f"invalid address {text!r}: expected ADDRESS:PORT, such as 127.0.0.1:8001"
            )
        bare = host.removeprefix("[").removesuffix("]")
        # No other name is accepted: it would need a DNS lookup, and its address could change.
        bare = "127.0.0.1" if bare == "localhost" else bare
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            raise ValueError(
                f"invalid IP address {host!r}: use an address of this host, such as 127.0.0.1"
            ) from None
        if (address.version == 6) is not host.startswith("["):
            raise ValueError(
                f"invalid address {text!r}: use brackets around an IPv6 address, as in "
                "[::1]:8001, and none around an IPv4 address"
            )
        return cls(str(address), int(port))

    @classmethod
    def allowed(cls, text: str, allow_remote: bool) -> TcpAddress:
        """Parse an address as ``parse`` does. Raises NotLoopback if other hosts can reach the
        address and ``allow_remote`` is False."""
        address = cls.parse(text)
        # Rejected by default: the token would cross the network unencrypted.
        if not address.is_loopback and not allow_remote:
            raise NotLoopback(
                f"other hosts can reach {address}, and traffic is not encrypted: use 127.0.0.1"
            )
        return address

    @classmethod
    def of(cls, listener: socket.socket) -> TcpAddress:
        """Return the address on which a socket listens, with its actual port."""
        host, port = listener.getsockname()[:2]
        return cls(host, port)

    def takes(self, host: str, port: int) -> bool:
        """True if a listener on this address accepts connections to ``host`` and ``port``."""
        is_any = ipaddress.ip_address(self.host).is_unspecified
        return port == self.port and (is_any or host == self.host)

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Access:
    """The access rules of one TCP listener: its address and its token."""

    address: TcpAddress
    token: str | None = attrs.field(default=None, repr=False)
    """The token that ``check_token`` requires; None makes ``check_token`` reject every request."""

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError if the header Host does not name this listener, or if a page of another
        web site sent the request. ``headers`` maps names in lower case to values."""
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin.removeprefix("http://")):
            raise _from_page()
        # Browsers send no Origin for embedded content, such as an image.
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_elsewhere and headers.get("sec-fetch-mode") != "navigate":
            raise _from_page()

    def check_token(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError if the request does not have the listener's token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given, wanted = token.strip().encode(), (self.token or "").encode()
        shown = given if scheme.lower() == "bearer" else b""
        # Compared in constant time, so that the response time reveals nothing about the token.
        if wanted and hmac.compare_digest(shown, wanted):
            return
        what = (
            "wrong token: use the token in the file control.token in the root; each start "
            "creates a new one"
            if shown
            else "the header `Authorization: Bearer TOKEN` is missing: the token is in the file "
            "control.token in the root"
        )
        raise HttpError(HTTPStatus.UNAUTHORIZED, "unauthorized", what)

    def _check_host(self, host: str) -> None:
        if self._is_ours(host):
            return
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"invalid header Host {host[:200]!r}: expected {self.address}",
        )

    def _is_ours(self, host: str) -> bool:
        address = self.address
        if not address.is_loopback:
            # The user allowed remote access. Clients can use any IP address of this host and
            # localhost, but no domain name.
            return _is_address(host, address.port)
        # Users also type localhost. A web site cannot make that name point elsewhere.
        return host in (str(address), f"localhost:{address.port}")


@attrs.frozen
class Gate:
    """The access rules of all TCP listeners of one server."""

    listeners: tuple[Access, ...] = ()

    def check_sender(self, scope: Scope) -> None:
        """Raise HttpError for a TCP request with a wrong Host, or from a page of another web
        site."""
        access = self._access(scope)
        if access is not None:
            access.check_sender(_headers(scope))

    def check(self, scope: Scope) -> None:
        """Raise HttpError for a TCP request that ``check_sender`` rejects, or that does not have
        the valid token."""
        access = self._access(scope)
        if access is not None:
            headers = _headers(scope)
            access.check_sender(headers)
            access.check_token(headers)

    def _access(self, scope: Scope) -> Access | None:
        """Return the rules of the listener that received the request; None for a unix socket.
        Raises HttpError if the server has no listener on the address of the request."""
        server = scope["server"]
        # uvicorn reports a unix socket as its path and no port.
        if server is not None and server[1] is None:
            return None
        # Found by the address of the connection, because the client chooses the header Host.
        for access in self.listeners:
            if server is not None and access.address.takes(*server):
                return access
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            "the server does not listen on the address of this connection",
        )


def _from_page() -> HttpError:
    # One text for all causes: a page must not learn which check rejected its request.
    return HttpError(
        HTTPStatus.FORBIDDEN, "forbidden", "requests from pages of other web sites are rejected"
    )


def _headers(scope: Scope) -> dict[str, str]:
    # Header bytes have no encoding; latin-1 maps every byte to one character.
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _is_address(host: str, port: int) -> bool:
    try:
        return TcpAddress.parse(host).port == port
    except ValueError:
        return False
