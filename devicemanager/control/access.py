"""Who may use the control API over TCP. On the unix socket its mode says it.

Browsers reach 127.0.0.1, too: a page of any site could ask, and a name that its owner lets
point there would make the page ours. So the token, the Host and the Origin all have to fit.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from http import HTTPStatus

import attrs

from devicemanager.control.errors import HttpError

__all__ = ["Access", "NotLoopback", "TcpAddress"]


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

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Access:
    """The rules of one TCP listener."""

    address: TcpAddress
    token: str = attrs.field(repr=False)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError unless the request may pass. ``headers`` have names in lower case."""
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(origin.removeprefix("http://")):
            raise HttpError(HTTPStatus.FORBIDDEN, "forbidden", "requests of web pages are refused")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self.token.encode()):
            raise HttpError(
                HTTPStatus.UNAUTHORIZED,
                "unauthorized",
                "the header `Authorization: Bearer TOKEN` is needed; the token is in "
                "control.token in the kubelet's directory",
            )

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


def _is_address(host: str, port: int) -> bool:
    try:
        return TcpAddress.parse(host).port == port
    except ValueError:
        return False
