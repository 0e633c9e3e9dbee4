"""Functions of IP addresses and networks. Parsing follows Go's package net/netip."""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.gotext import quote
from devicemanager.claims.cel.values import NO_OVERLOAD, CelError, IPAddress, Network

_DIGITS = frozenset(string.digits)
_MAPPED = 0xFFFF
_ALL_ONES = 2**32 - 1


def parse_address(text: str) -> IPAddress:
    """Parse an IP address. An IPv6 address can have a zone, as in ``fe80::1%eth0``.

    Raises ValueError with Go's message.
    """
    for char in text:
        if char == ".":
            return _ipv4(text)
        if char == ":":
            return _ipv6(text)
        if char == "%":
            raise _fault(text, "missing IPv6 address")
    raise _fault(text, "unable to parse IP")


def _fault(text: str, what: str) -> ValueError:
    return ValueError(f"ParseAddr({quote(text)}): {what}")


def _ipv4(text: str) -> IPAddress:
    fields = text.split(".")
    for field in fields:
        if not _DIGITS.issuperset(field):
            raise _fault(text, "unexpected character (at " + quote(_bad_part(text)) + ")")
        if not field:
            raise _fault(text, "IPv4 field must have at least one digit")
        if len(field) > 1 and field.startswith("0"):
            raise _fault(text, "IPv4 field has octet with leading zero")
        if len(field) > 3 or int(field) > 255:
            raise _fault(text, "IPv4 field has value >255")
    if len(fields) != 4:
        what = "IPv4 address too short" if len(fields) < 4 else "IPv4 address too long"
        raise _fault(text, what)
    return _address(ipaddress.IPv4Address(text))


def _bad_part(text: str) -> str:
    return text.lstrip(string.digits + ".")


def _ipv6(text: str) -> IPAddress:
    address, percent, zone = text.partition("%")
    if percent and not zone:
        raise _fault(text, "zone must be a non-empty string")
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        raise _fault(text, "unable to parse IP") from None
    return _with_zone(_address(parsed), zone)


def _with_zone(address: IPAddress, zone: str) -> IPAddress:
    """Return the address with its zone."""
    return IPAddress(address.family, address.number, f"{address.text}%{zone}") if zone else address


def _address(parsed: ipaddress.IPv4Address | ipaddress.IPv6Address) -> IPAddress:
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return IPAddress(6, int(parsed), f"::ffff:{parsed.ipv4_mapped}")
    return IPAddress(parsed.version, int(parsed), str(parsed))


def _ip(text: str) -> IPAddress:
    """Evaluate ``ip('10.0.0.1')``. Zones and IPv4-mapped IPv6 addresses are errors."""
    try:
        address = parse_address(text)
    except ValueError as error:
        fault = f"IP Address {quote(text)} parse error during conversion from string: {error}"
        raise CelError(fault) from None
    if "%" in address.text:
        raise CelError(f"IP address {quote(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise CelError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _is_mapped(address: IPAddress) -> bool:
    return address.family == 6 and address.number >> 32 == _MAPPED


def _parse_network(text: str) -> Network:
    head, slash, bits = text.rpartition("/")

    def fault(what: str) -> ValueError:
        return ValueError(f"netip.ParsePrefix({quote(text)}): {what}")

    if not slash:
        raise fault("no '/'")
    try:
        address = parse_address(head)
    except ValueError as error:
        raise fault(str(error)) from None
    if "%" in address.text:
        raise fault("IPv6 zones cannot be present in a prefix")
    # Go rejects signs and leading zeros.
    if not bits or not _DIGITS.issuperset(bits) or (len(bits) > 1 and bits[0] == "0"):
        raise fault(f"bad bits after slash: {quote(bits)}")
    if len(bits) > 3 or int(bits) > address.bits:
        raise fault("prefix length out of range")
    return Network(address, int(bits))


def _cidr(text: str) -> Network:
    """Evaluate ``cidr('10.0.0.0/8')``."""
    prefix = "network address parse error during conversion from string: "
    try:
        network = _parse_network(text)
    except ValueError as error:
        # Go's function puts this prefix before the message twice.
        raise CelError(f"{prefix}{prefix}{error}") from None
    if _is_mapped(network.address):
        raise CelError(f"{prefix}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return network


def _accepts(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return accepts


def _contains_ip(network: Network, address: IPAddress) -> bool:
    if network.address.family != address.family:
        return False
    return Network(address, network.prefix).masked == network.masked


def _contains_ip_text(network: Network, text: str) -> bool:
    try:
        return _contains_ip(network, _ip(text))
    except CelError:
        raise CelError(NO_OVERLOAD) from None


def _contains_network(network: Network, other: Network) -> bool:
    return network.prefix <= other.prefix and _contains_ip(network, other.address)


def _masked(network: Network) -> Network:
    family = ipaddress.IPv4Address if network.address.family == 4 else ipaddress.IPv6Address
    return Network(_address(family(network.masked)), network.prefix)


def _within(address: IPAddress, *networks: str) -> bool:
    found = (_parse_network(text) for text in networks)
    return any(_contains_ip(network, address) for network in found)


def _is_loopback(address: IPAddress) -> bool:
    return _within(address, "127.0.0.0/8", "::1/128")


def _is_multicast(address: IPAddress) -> bool:
    return _within(address, "224.0.0.0/4", "ff00::/8")


def _is_link_local_multicast(address: IPAddress) -> bool:
    if address.family == 4:
        return _within(address, "224.0.0.0/24")
    # An IPv6 multicast address is ff, flags, scope: match any flags with scope 2 (link-local).
    return address.number >> 112 & 0xFF0F == 0xFF02


def _is_link_local_unicast(address: IPAddress) -> bool:
    return _within(address, "169.254.0.0/16", "fe80::/10")


def _is_global_unicast(address: IPAddress) -> bool:
    is_broadcast = address.family == 4 and address.number == _ALL_ONES
    return bool(address.number) and not (
        is_broadcast
        or _is_loopback(address)
        or _is_multicast(address)
        or _is_link_local_unicast(address)
    )


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "string_to_ip": _ip,
    "is_ip": _accepts(_ip),
    "ip_is_canonical": lambda text: _ip(text).text == text,
    "ip_to_string": lambda address: address.text,
    "ip_family": lambda address: address.family,
    "ip_is_unspecified": lambda address: address.number == 0,
    "ip_is_loopback": _is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": _is_link_local_unicast,
    "ip_is_global_unicast": _is_global_unicast,
    "string_to_cidr": _cidr,
    "is_cidr": _accepts(_cidr),
    "cidr_to_string": lambda network: f"{network.address.text}/{network.prefix}",
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": lambda network, text: _contains_network(network, _cidr(text)),
    "cidr_contains_cidr": _contains_network,
    "cidr_prefix_length": lambda network: network.prefix,
    "cidr_masked": _masked,
    "cidr_ip": lambda network: network.address,
}
