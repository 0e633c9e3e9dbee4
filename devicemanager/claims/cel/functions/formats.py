"""Named formats, such as ``format.uuid()``, and the messages for values that violate them.

The rules and messages are those of apimachinery/pkg/util/validation and kube-openapi/strfmt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

from devicemanager.claims.cel.functions.urls import parse_request_uri
from devicemanager.claims.cel.values import NONE, CelError, Format, Optional

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character"
)
_OLD_LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and must start and end with an alphanumeric character"
)
_NAME_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character"
)


def _too_long(text: str, most: int, unit: str = "bytes") -> list[str]:
    return [f"must be no more than {most} {unit}"] if len(text.encode()) > most else []


def _violates(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _dns_label(text: str) -> list[str]:
    faults = _too_long(text, 63, "characters")
    if _fits(_LABEL, text):
        return faults
    if _fits(_SUBDOMAIN, text):
        return [*faults, "must not contain dots"]
    return [*faults, _violates(_LABEL_TEXT, _LABEL, "my-name", "123-abc")]


def _dns_subdomain(text: str) -> list[str]:
    faults = _too_long(text, 253, "characters")
    if _fits(_SUBDOMAIN, text):
        return faults
    return [*faults, _violates(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com")]


def _dns_old_label(text: str) -> list[str]:
    faults = _too_long(text, 63, "characters")
    if _fits(_OLD_LABEL, text):
        return faults
    return [*faults, _violates(_OLD_LABEL_TEXT, _OLD_LABEL, "my-name", "abc-123")]


def _label_value(text: str) -> list[str]:
    faults = _too_long(text, 63)
    if not text or _fits(_NAME, text):
        return faults
    examples = ("MyValue", "my_value", "12345")
    return [*faults, _violates(_VALUE_TEXT, f"({_NAME})?", *examples)]


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        what = f"a qualified name {_NAME_TEXT}"
        examples = ("MyName", "my.name", "123-abc")
        return [f"{_violates(what, _NAME, *examples)} with an optional DNS subdomain prefix and"
                " '/' (e.g. 'example.com/MyName')"]  # fmt: skip
    faults: list[str] = []
    if slash:
        faults = ["prefix part must be non-empty"] if not prefix else []
        faults += [f"prefix part {each}" for each in (_dns_subdomain(prefix) if prefix else ())]
    if not name:
        faults.append("name part must be non-empty")
    faults += [f"name part {each}" for each in _too_long(name, 63)]
    if not _fits(_NAME, name):
        examples = ("MyName", "my.name", "123-abc")
        faults.append(f"name part {_violates(_NAME_TEXT, _NAME, *examples)}")
    return faults


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a check for a prefix of a name. Unlike a name, a prefix may end with a dash."""

    def checked(text: str) -> list[str]:
        if len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        return check(text)

    return checked


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except CelError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    if not _fits("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    # Year 0 is a leap year in Go's calendar. Python has no year 0.
    year = int(text[:4]) or 2000
    try:
        date(year, int(text[5:7]), int(text[8:]))
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, separator, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0]) if separator else None
    if match is None or not _is_date(day):
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _or_fault(fits: Callable[[str], Any], fault: str) -> Callable[[str], list[str]]:
    return lambda text: [] if fits(text) else [fault]


_FORMATS: dict[str, tuple[str, int, Callable[[str], Iterable[str]]]] = {
    "dns1123Label": ("DNS1123Label", 30, _dns_label),
    "dns1123Subdomain": ("DNS1123Subdomain", 60, _dns_subdomain),
    "dns1035Label": ("DNS1035Label", 30, _dns_old_label),
    "qualifiedName": ("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", 30, _prefix(_dns_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", 60, _prefix(_dns_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", 30, _prefix(_dns_old_label)),
    "labelValue": ("LabelValue", 40, _label_value),
    "uri": ("URI", 1103, _uri),
    "uuid": ("uuid", 71, _or_fault(_UUID.fullmatch, "does not match the UUID format")),
    "byte": ("byte", 84, _or_fault(_BASE64.fullmatch, "invalid base64")),
    "date": ("date", 70, _or_fault(_is_date, "invalid date")),
    "datetime": ("datetime", 70, _or_fault(_is_datetime, "invalid datetime")),
}
"""Formats by name: Kubernetes' name, length of the regular expression (for the cost), check."""
_CHECKS = {name: check for name, _, check in _FORMATS.values()}


def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(Format(*found[:2]))


def _validate(format_: Format, text: str) -> Optional:
    faults = list(_CHECKS[format_.name](text))
    return Optional(faults) if faults else NONE


def _maker(name: str, size: int) -> Callable[[], Format]:
    return lambda: Format(name, size)


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **{f"format.{key}": _maker(name, size) for key, (name, size, _) in _FORMATS.items()},
    "format-named": _named,
    "format-validate": _validate,
}
