"""Checks of names and values in resource.k8s.io, with the API server's messages.

Each check yields one error per broken rule; ``at`` is the path of the field. The checks follow
``k8s.io/apimachinery/pkg/api/validate/content`` and ``pkg/apis/resource/validation`` (v1.37).
Lengths are in bytes of UTF-8, except in ``declared_driver_name``.

Some rules of Kubernetes are validation tags in the API's Go types, such as ``+k8s:format``. The
functions ``declared_…`` check these rules. Their errors have ``FieldError.declared`` set to True.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from devicemanager.core.quantity import Quantity
from devicemanager.objects.dra.errors import (
    Errors,
    declared,
    invalid,
    required,
    too_long,
)

__all__ = [
    "c_identifier",
    "declared_driver_name",
    "declared_long_name",
    "declared_pool_name",
    "declared_short_name",
    "driver_name",
    "extended_resource_name",
    "fully_qualified_name",
    "interface_address",
    "label_key",
    "label_value",
    "length",
    "long_name",
    "node_name",
    "pool_name",
    "qualified_name",
    "quantity",
    "semver",
    "short_name",
    "uuid",
]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_MAX_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253
_MAX_DRIVER: Final = 63
_MAX_IDENTIFIER: Final = 32
_MAX_VALUE: Final = 64

_ENDS: Final = "and must start and end with an alphanumeric character"
_LABEL_RULE: Final = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', {_ENDS}"
)
_CASELESS_RULE: Final = (
    f"an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', {_ENDS}"
)
_KEY_RULE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', {_ENDS}"
)
_IDENTIFIER_RULE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_'"
)


def length(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    # A JSON text can contain a lone surrogate, for which the strict encoder raises an error.
    return len(text.encode(errors="surrogatepass"))


def _rule(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _bounded(text: str, most: int, unit: str = "bytes") -> Iterator[str]:
    if length(text) > most:
        yield f"must be no more than {most} {unit}"


# -- faults of texts ---------------------------------------------------------------------


def _label_faults(text: str, unit: str = "bytes") -> Iterator[str]:
    yield from _bounded(text, _MAX_LABEL, unit)
    if _matches(_LABEL, text):
        return
    # A subdomain that is not a label has dots, so the message can be more exact.
    if _matches(_SUBDOMAIN, text):
        yield "must not contain dots"
    else:
        yield _rule(_LABEL_RULE, _LABEL, "my-name", "123-abc")


def _subdomain_faults(text: str, unit: str = "bytes") -> Iterator[str]:
    yield from _bounded(text, _MAX_SUBDOMAIN, unit)
    if not _matches(_SUBDOMAIN, text):
        yield _rule(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com")


def _caseless_faults(text: str) -> Iterator[str]:
    yield from _bounded(text, _MAX_SUBDOMAIN)
    # Without ASCII, IGNORECASE would also match a few other letters, such as the Kelvin sign.
    if not re.fullmatch(_SUBDOMAIN, text, re.IGNORECASE | re.ASCII):
        yield _rule(_CASELESS_RULE, _SUBDOMAIN, "Example.com")


def _key_faults(text: str) -> Iterator[str]:
    *prefix, name = text.split("/")
    rule = _rule(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
    if len(prefix) > 1:
        yield (
            f"a valid label key {rule} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if prefix:
        faults = _subdomain_faults(prefix[0]) if prefix[0] else ["must be non-empty"]
        yield from (f"prefix part {each}" for each in faults)
    if not name:
        yield "name part must be non-empty"
    yield from (f"name part {each}" for each in _bounded(name, _MAX_LABEL))
    if not _matches(_KEY, name):
        yield f"name part {rule}"


def _value_faults(text: str) -> Iterator[str]:
    yield from _bounded(text, _MAX_LABEL)
    if not _matches(_VALUE, text):
        yield _rule(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345")


_UNIT: Final = "characters"
"""Unit of lengths in the messages of rules that are not declared."""

# -- errors of fields --------------------------------------------------------------------


def short_name(at: str, text: str) -> Errors:
    """Check a DNS label, such as the name of a device."""
    return (invalid(at, text, each) for each in _label_faults(text, _UNIT))


def declared_short_name(at: str, text: str) -> Errors:
    """Check a DNS label, such as a counter name. The rule is a validation tag of the API."""
    return declared(invalid(at, text, each) for each in _label_faults(text))


def long_name(at: str, text: str) -> Errors:
    """Check a DNS subdomain, such as an object name."""
    return (invalid(at, text, each) for each in _subdomain_faults(text, _UNIT))


def declared_long_name(at: str, text: str) -> Errors:
    """Check a DNS subdomain, such as a class name. The rule is a validation tag of the API."""
    return declared(invalid(at, text, each) for each in _subdomain_faults(text))


node_name = long_name


def label_key(at: str, text: str) -> Errors:
    """Check a label key (``[domain/]name``)."""
    return (invalid(at, text, each) for each in _key_faults(text))


def label_value(at: str, text: str) -> Errors:
    """Check a label value."""
    return (invalid(at, text, each) for each in _value_faults(text))


def driver_name(at: str, text: str) -> Errors:
    """Check a driver name (``ValidateCSIDriverName``)."""
    if not text:
        yield required(at)
        return
    if length(text) > _MAX_DRIVER:
        yield too_long(at, _MAX_DRIVER)
    # ``ValidateCSIDriverName`` lowers the case first, so it accepts uppercase letters.
    yield from (invalid(at, text, each) for each in _subdomain_faults(text.lower(), _UNIT))


def declared_driver_name(at: str, text: str) -> Errors:
    """Check the format of a driver name, and that it has at most 63 characters. The rule is a
    validation tag of the API."""
    if not text:
        yield from declared([required(at)])
        return
    if len(text) > _MAX_DRIVER:
        yield from declared([too_long(at, _MAX_DRIVER, "characters")])
        return
    yield from declared(invalid(at, text, each) for each in _caseless_faults(text))


def pool_name(at: str, text: str) -> Errors:
    """Check a pool name: DNS subdomains, separated by ``/``."""
    if not text:
        yield required(at)
        return
    if length(text) > _MAX_SUBDOMAIN:
        yield too_long(at, _MAX_SUBDOMAIN)
    for part in text.split("/"):
        yield from long_name(at, part)


def declared_pool_name(at: str, text: str) -> Errors:
    """Check a pool name. The rule is a validation tag of the API."""
    if not text:
        yield from declared([required(at)])
        return
    if length(text) > _MAX_SUBDOMAIN:
        yield from declared([too_long(at, _MAX_SUBDOMAIN)])
    for number, part in enumerate(text.split("/")):
        if not part:
            yield from declared([invalid(at, text, f"segment {number}: must not be empty")])
        for fault in _subdomain_faults(part) if part else ():
            yield from declared([invalid(at, part, f"segment {number}: {fault}")])


def c_identifier(at: str, text: str) -> Errors:
    """Check the name of an attribute or capacity. The name must not include a domain."""
    if length(text) > _MAX_IDENTIFIER:
        yield too_long(at, _MAX_IDENTIFIER)
    if not _matches(_IDENTIFIER, text):
        rule = _rule(_IDENTIFIER_RULE, _IDENTIFIER, "my_name", "MY_NAME", "MyName")
        yield invalid(at, text, rule)


def qualified_name(at: str, text: str) -> Errors:
    """Check the name of an attribute or capacity (``[domain/]name``).

    As in the API server, a name with more than one ``/`` is not checked, so it has no errors.
    """
    *domains, name = text.split("/")
    if len(domains) > 1:
        return
    for domain in domains:
        if domain:
            yield from driver_name(at, domain)
        else:
            yield invalid(at, "", "the domain must not be empty")
    if domains and not name:
        yield invalid(at, "", "the name must not be empty")
    else:
        yield from c_identifier(at, name)


def fully_qualified_name(at: str, text: str) -> Errors:
    """Check the name of an attribute, including its domain."""
    yield from declared(_fully_qualified_name(at, text))


def _fully_qualified_name(at: str, text: str) -> Errors:
    *domains, name = text.split("/")
    if not domains:
        yield from c_identifier(at, name)
        rule = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(at, text, rule)
    # As in ``qualified_name``, a name with more than one slash is not checked.
    elif len(domains) == 1:
        yield from _domain(at, domains[0])
        if name:
            yield from c_identifier(at, name)
        else:
            yield invalid(at, "", "name must not be empty")


def _domain(at: str, domain: str) -> Errors:
    if not domain:
        yield invalid(at, "", "prefix must not be empty")
        return
    if length(domain) > _MAX_DRIVER:
        yield too_long(at, _MAX_DRIVER)
    yield from (invalid(at, domain, f"prefix: {each}") for each in _subdomain_faults(domain))


def uuid(at: str, text: str) -> Errors:
    """Check a UUID, such as a share ID."""
    if not _matches("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
        rule = "must be a lowercase UUID in 8-4-4-4-12 format"
        yield from declared([invalid(at, text, rule)])


_IDENTIFIERS: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_NUMBER: Final = "(0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_IDENTIFIERS}(\.{_IDENTIFIERS})*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


def semver(at: str, text: str) -> Errors:
    """Check the value of a version attribute."""
    if not _SEMVER.fullmatch(text):
        yield invalid(at, text, "must be a string compatible with semver.org spec 2.0.0")
    if length(text) > _MAX_VALUE:
        yield too_long(at, _MAX_VALUE)


def extended_resource_name(at: str, text: str) -> Errors:
    """Check the name of an extended resource, such as ``vendor.com/gpu``."""
    faults = []
    if "/" not in text:
        faults.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif "kubernetes.io/" in text:
        faults.append('must not have "kubernetes.io/" domain')
    if text.startswith("requests."):
        faults.append('must not have "requests." prefix')
    # A ResourceQuota uses the name with this prefix, so the longer name must be valid, too.
    faults += _key_faults(f"requests.{text}")
    yield from declared(invalid(at, text, each) for each in faults)


def interface_address(at: str, text: str) -> Errors:
    """Check the address of a network interface, such as ``10.9.8.7/24``."""
    try:
        # Python also accepts an address without a prefix length, which is not in CIDR form.
        address = ipaddress.ip_interface(text)
        if "/" not in text:
            raise ValueError(text)
    except ValueError:
        rule = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield invalid(at, text, rule)
        return
    if str(address) != text:
        yield invalid(at, text, f'must be in canonical form ("{address}")')


def quantity(value: Any) -> Quantity | None:
    """Parse the text or number of a quantity. Return None for an invalid value."""
    try:
        # In JSON, Go accepts a quantity without quotes, which arrives here as a number.
        return Quantity.parse(value if isinstance(value, str) else str(value))
    except ValueError:
        return None
