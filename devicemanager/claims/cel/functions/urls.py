"""Functions of URLs. Parsing follows Go's package net/url (Go 1.26)."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.functions.addresses import parse_address
from devicemanager.claims.cel.gotext import quote
from devicemanager.claims.cel.values import CelError, Map, Url

_UNRESERVED = string.ascii_letters + string.digits + "-_.~"
_IN_PATH = frozenset((_UNRESERVED + "$&+,/:;=@").encode())
_IN_HOST = frozenset((_UNRESERVED + "!$&'()*+,;=:[]<>\"").encode())
_IN_USER = frozenset(_UNRESERVED + ":!$&'()*+,;=%@")
_VALID_PATH = _IN_PATH | frozenset(b"!$&'()*+,;=:@[]%")
_HEX = frozenset(string.hexdigits)
_DIGITS = frozenset(string.digits)
_SCHEME = frozenset(string.ascii_letters + string.digits + "+-.")


class _Invalid(Exception):
    pass


def _unescape(text: str, in_host: bool = False, plus_is_space: bool = False) -> bytes:
    """Replace the percent escapes of a text. Raises _Invalid for an invalid escape."""
    data = bytearray()
    at = 0
    while at < len(text):
        char = text[at]
        if char == "%":
            code = text[at + 1 : at + 3]
            escaped_ascii = in_host and code[:1] < "8" and code != "25"
            if len(code) < 2 or not _HEX.issuperset(code) or escaped_ascii:
                raise _Invalid(f"invalid URL escape {quote(text[at : at + 3])}")
            data.append(int(code, 16))
            at += 3
            continue
        encoded = b" " if plus_is_space and char == "+" else char.encode()
        if in_host and len(encoded) == 1 and encoded[0] not in _IN_HOST:
            raise _Invalid(f"invalid character {quote(char)} in host name")
        data += encoded
        at += 1
    return bytes(data)


def _escape(data: bytes) -> str:
    return "".join(chr(byte) if byte in _IN_PATH else f"%{byte:02X}" for byte in data)


def _scheme(text: str) -> tuple[str, str]:
    head, colon, rest = text.partition(":")
    if colon and not head:
        raise _Invalid("missing protocol scheme")
    if not colon or not head[0].isascii() or not head[0].isalpha() or not _SCHEME.issuperset(head):
        return "", text
    return head.lower(), rest


def parse_request_uri(text: str) -> Url:
    """Parse an absolute URL or an absolute path (``ParseRequestURI``). Raises CelError for
    any other text."""
    try:
        return _parse(text, is_request=True)
    except _Invalid as error:
        raise CelError(f"parse {quote(text)}: {error}") from None


def _parse(text: str, is_request: bool) -> Url:
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise _Invalid("net/url: invalid control character in URL")
    if not text:
        raise _Invalid("empty url")
    if text == "*":
        return Url(text, "", "", "*", "")
    scheme, rest = _scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(_with_lower_scheme(scheme, text), scheme, "", "", query)
        raise _Invalid("invalid URI for request")
    host = ""
    has_authority = scheme or (not is_request and not rest.startswith("///"))
    if has_authority and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _authority(scheme, authority)
    path_bytes = _unescape(rest)
    shown = _with_lower_scheme(scheme, text)
    return Url(shown, scheme, host, _escaped_path(rest, path_bytes), query)


def _with_lower_scheme(scheme: str, text: str) -> str:
    """Return the URL with its scheme in lower case. URLs with equal results are equal."""
    return scheme + text[len(scheme) :]


def _escaped_path(raw: str, path: bytes) -> str:
    escaped = _escape(path)
    if raw == escaped or not _VALID_PATH.issuperset(raw.encode()):
        return escaped
    return raw


def _authority(scheme: str, text: str) -> str:
    user, at, host = text.rpartition("@")
    found = _host(scheme, host)
    if at:
        if not _IN_USER.issuperset(user):
            raise _Invalid("net/url: invalid userinfo")
        for part in user.split(":", 1):
            _unescape(part)
    return found


def _check_port(text: str) -> None:
    if text and (text[0] != ":" or not _DIGITS.issuperset(text[1:])):
        raise _Invalid(f"invalid port {quote(text)} after host")


def _host(scheme: str, host: str) -> str:
    if host.rfind("[") > 0:
        raise _Invalid("invalid IP-literal")
    if host.startswith("["):
        return _bracketed(host)
    if ":" in host:
        # Other schemes accept a second colon in the host.
        is_strict = scheme in ("http", "https")
        _check_port(host[host.index(":") if is_strict else host.rindex(":") :])
    return _unescape(host, in_host=True).decode(errors="replace")


def _bracketed(host: str) -> str:
    address, bracket, port = host[1:].rpartition("]")
    if not bracket:
        raise _Invalid("missing ']' in host")
    _check_port(port)
    name, zone_mark, zone = address.partition("%25")
    shown = _unescape(name, in_host=True).decode(errors="replace")
    if zone_mark:
        shown += "%" + _unescape(zone).decode(errors="replace")
    try:
        parsed = parse_address(shown)
    except ValueError as error:
        raise _Invalid(f"invalid host: {error}") from None
    if parsed.family == 4:
        raise _Invalid("invalid IP-literal")
    return f"[{shown}]{port}"


def _url(text: str) -> Url:
    """Evaluate ``url('https://example.com')``."""
    try:
        parse_request_uri(text)
        # The first pass treated the fragment as part of the path. Parse again without it.
        return _parse(text.partition("#")[0], is_request=False)
    except CelError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None
    except _Invalid as error:
        fault = f"parse {quote(text)}: {error}"
        raise CelError(f"URL parse error during conversion from string: {fault}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request_uri(text)
    except CelError:
        return False
    return True


def _split_port(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    if not colon or not _DIGITS.issuperset(port):
        name, port = host, ""
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name, port


def _query(url: Url) -> Map:
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        try:
            parts = [_unescape(each, plus_is_space=True) for each in (key, value)]
        except _Invalid:
            continue
        name, text = (part.decode(errors="replace") for part in parts)
        found.setdefault(name, []).append(text)
    return Map(found.items())


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "string_to_url": _url,
    "is_url_string": _is_url,
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": lambda url: _split_port(url.host)[0],
    "url_get_port": lambda url: _split_port(url.host)[1],
    "url_get_escaped_path": lambda url: url.escaped_path,
    "url_get_query": _query,
}
