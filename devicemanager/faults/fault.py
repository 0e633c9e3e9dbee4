"""Faults as Python objects (``Fault``), as lines of text and in files.

A fault says what fails, for which plugin and how often. A line has the kind of the fault and the
fault's options:

``reject-register:code=UNAVAILABLE,text=not now,times=2,resource=vendor.com/gpu``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import attrs

from devicemanager.core.api.names import is_dns1123_subdomain, is_extended_resource_name
from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
from devicemanager.faults.injection_point import InjectionPoint
from devicemanager.faults.kinds import KINDS, RPCS, Kind, Option, choice, probability, text, whole
from devicemanager.io.safe_read import FileRejected, not_utf8, read_regular

__all__ = ["AT", "COMMON", "NOW", "Fault", "FaultError", "read_faults"]

NOW = "now"
# Not at START, when there is nothing to act on. For CALL, ``at`` names the call itself.
_AT = (
    NOW,
    *(
        point.value
        for point in InjectionPoint
        if point not in (InjectionPoint.START, InjectionPoint.CALL)
    ),
    *RPCS,
)

COMMON = (
    Option("times", whole(1), "maximum number of times that the fault fires (default: no limit)"),
    Option("after", whole(0), "number of matches before the fault can fire", 0),
    Option("probability", probability, "probability that the fault fires at a match", 1.0),
    Option("seed", whole(0), "seed for the probability (default: derived from the run's seed)"),
    Option("resource", text, "only for this resource, or for this DRA driver"),
    Option("plugin", text, "only for the plugin whose socket has this file name"),
)
"""Options that faults of every kind have."""
AT = Option(
    "at",
    choice(*_AT),
    "only for actions: when the action is executed. `now` means when the fault is set. All other "
    "values are injection points and calls, which the section Actions describes: "
    f"{', '.join(_AT[1:-1])} and {_AT[-1]}",
    NOW,
)
"""Option that only actions have. An action is a fault that acts on the kubelet as a whole, such as
a restart."""


def _is_resource_or_driver(name: str) -> bool:
    # Drivers have names with dots. Without one, it is a resource whose domain is missing.
    return is_extended_resource_name(name) or ("." in name and is_dns1123_subdomain(name))


# A comma in a text needs no escape unless a name and "=" follow.
_COMMA = re.compile(r"(?<!\\),(?=\s*[a-z_]+=)")

_MOST_BYTES = 1 << 20
_MOST_VALUES = 100_000
"""Maximum number of values in a file, after all YAML aliases are expanded."""
_LONGEST_TEXT = 1000


class FaultError(RequestError):
    """Error of an invalid fault. The text is one line and names the valid choices."""


def _fixed(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(options))


@attrs.frozen(repr=False)
class Fault:
    """A fault that can be set: its kind, its options, and when it fires.

    A fault *matches* when the kubelet reaches the fault's injection point for a plugin and a call
    that the options select. Create faults with :meth:`of`, :meth:`parse` or :meth:`from_data`.
    :data:`devicemanager.faults.KINDS` has the kinds and their options.
    """

    kind: Kind
    times: int | None = None
    """Maximum number of times that the fault fires; None for no limit."""
    after: int = 0
    """Number of matches (see ``Fault``) that the fault ignores before it can fire."""
    probability: float = 1.0
    """Probability that the fault fires when it matches (see ``Fault``)."""
    seed: int | None = None
    """Seed of the random numbers for ``probability``; None to use ``FaultRegistry.seed``."""
    resource: str | None = None
    """The only resource or DRA driver for which the fault fires; None for all."""
    plugin: str | None = None
    """File name of the socket of the only plugin for which the fault fires; None for all."""
    at: str = NOW
    """When an action is executed: ``now``, or the name of an injection point or of a call. With
    ``now``, the action is executed when the fault is set."""
    # Read-only, since faults are shared between threads.
    options: Mapping[str, Any] = attrs.field(factory=dict, converter=_fixed)
    """Values of all options of the kind, by option name. An option that was not given has its
    default."""

    @classmethod
    def of(cls, kind: str, /, **given: Any) -> Self:
        """Create a fault of the given kind. The keyword arguments are the options of the fault.

        The value of an option can be a Python value, or text as in a line for :meth:`parse`.
        Raises FaultError for an unknown kind, an unknown option or an invalid value.
        """
        row = KINDS.get(kind)
        if row is None:
            raise FaultError(f"unknown fault {kind!r}: use one of {', '.join(KINDS)}")
        common = (*COMMON, AT) if row.is_action else COMMON
        options = {option.name: option for option in (*row.options, *common)}
        for name in given:
            if name not in options:
                raise FaultError(
                    f"{kind}: unknown option {name!r}: use one of {', '.join(options)}"
                )
        values = {name: _value(row, option, given) for name, option in options.items()}
        own = {option.name: values.pop(option.name) for option in row.options}
        fault = cls(row, **values, options=own)
        return attrs.evolve(fault, times=1) if fault._is_once else fault

    def __attrs_post_init__(self) -> None:
        name = self.kind.name
        if self.resource is not None and not _is_resource_or_driver(self.resource):
            raise FaultError(
                f"{name}: invalid resource {self.resource!r}: expected a domain and a name, such "
                "as vendor.com/gpu, or a DRA driver, such as gpu.example.com"
            )
        # Without an injection point there are no matches to count: reject options that would
        # have no effect.
        if self.is_immediate and (self.times, self.after, self.probability) != (None, 0, 1.0):
            raise FaultError(
                f"{name} is executed immediately: times, after and probability need at=POINT, "
                f"where POINT is one of {', '.join(_AT[1:])}"
            )

    # A restart that fires at every match would never let a plugin register.
    @property
    def _is_once(self) -> bool:
        return self.kind.is_action and not self.is_immediate and self.times is None

    @property
    def is_immediate(self) -> bool:
        """True if the fault is an action that ``FaultRegistry.set`` executes immediately."""
        return self.kind.is_action and self.at == NOW

    @property
    def point(self) -> InjectionPoint | None:
        """The injection point where the fault can fire; None if it is executed immediately."""
        if self.kind.point is not None:
            return self.kind.point
        if self.is_immediate:
            return None
        return InjectionPoint.CALL if self.at in RPCS else InjectionPoint(self.at)

    @property
    def rpc(self) -> str | None:
        """Name of the only RPC for which the fault fires; None for all."""
        if self.at in RPCS:
            return self.at
        return self.options.get("rpc") or self.options.get("method")

    @property
    def phase(self) -> str:
        """The text ``after`` if the fault fires when a plugin has responded to a call, otherwise
        the text ``before``."""
        return "after" if self.options.get("when") == "after" else "before"

    @classmethod
    def parse(cls, line: str) -> Self:
        """Create a fault from a line ``KIND`` or ``KIND:NAME=VALUE,NAME=VALUE``.

        A comma in a value is written as ``\\,`` if ``name=`` follows. Raises FaultError for an
        invalid line.
        """
        kind, _, rest = line.strip().partition(":")
        given: dict[str, str] = {}
        for part in _COMMA.split(rest) if rest else ():
            name, equals, value = part.partition("=")
            name = name.strip()
            if not equals:
                raise FaultError(
                    f"invalid fault {line!r}: {part!r} is not NAME=VALUE: expected "
                    "KIND:NAME=VALUE,…, such as reject-register:code=UNAVAILABLE,times=2"
                )
            if name in given:  # a mapping would keep the last one without an error
                raise FaultError(f"invalid fault {line!r}: duplicate option {name}")
            given[name] = value.replace("\\,", ",")
        return cls.of(kind, **given)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Create a fault from a line, or from a mapping with ``kind`` and options.

        Raises FaultError for an invalid line or mapping.
        """
        if isinstance(data, str):
            return cls.parse(data)
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            raise FaultError(
                f"invalid fault {data!r}: expected a line such as reject-register:times=2, or a "
                "mapping with kind and options"
            )
        # Clients in other languages send null for options that are not set.
        given = {str(name): value for name, value in data.items() if value is not None}
        return cls.of(given.pop("kind"), **given)

    def as_data(self) -> dict[str, Any]:
        """Return the fault as a mapping that ``from_data`` accepts.

        It has ``kind``, all options of the kind, and the common options that differ from their
        defaults.
        """
        common = (*COMMON, AT) if self.kind.is_action else COMMON
        values = {option.name: getattr(self, option.name) for option in common}
        return {
            "kind": self.kind.name,
            **{name: value for name, value in self.options.items() if value is not None},
            **{
                option.name: values[option.name]
                for option in common
                if values[option.name] != option.default
            },
        }

    def __repr__(self) -> str:
        return f"Fault.parse({str(self)!r})"

    def __str__(self) -> str:
        data = self.as_data()
        kind = data.pop("kind")
        defaults = {option.name: option.default for option in self.kind.options}
        parts = [
            f"{name}={_written(value)}"
            for name, value in data.items()
            if name not in defaults or value != defaults[name]
        ]
        return f"{kind}:{','.join(parts)}" if parts else kind


def _value(kind: Kind, option: Option, given: Mapping[str, Any]) -> Any:
    if option.name not in given:
        if option.required:
            raise FaultError(
                f"{kind.name} needs {option.name} ({option.meaning}): "
                f"use {kind.name}:{option.name}=…"
            )
        return option.default
    value = given[option.name]
    try:
        return option.default if value is None else option.read(value)
    except ValueError as error:
        raise FaultError(
            f"{kind.name}: invalid {option.name} {value!r}: expected {error}"
        ) from None


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    # Escape a comma only where the parser would otherwise begin another option.
    return _COMMA.sub(r"\\,", str(value))


# -- files ---------------------------------------------------------------------------------


def read_faults(path: Path) -> tuple[int | None, tuple[Fault, ...]]:
    """Read a YAML or JSON file of faults; return its seed (None if it has none) and its faults.

    The file is a list of faults, or a mapping with ``seed`` and the list as ``faults``.
    A fault is a line (``reject-register:times=2``) or a mapping with ``kind`` and options.

    Raises FaultError with one line that names the file, the fault and the problem.
    """
    document = _document(path)
    seed = None
    if isinstance(document, Mapping):
        if unknown := sorted(map(str, document.keys() - {"seed", "faults"})):
            raise FaultError(f"{path}: unknown field {unknown[0]!r}: use one of seed, faults")
        seed = _seed(path, document.get("seed"))
        document = document.get("faults")
    if not isinstance(document, list):
        raise FaultError(
            f"{path}: expected a list of faults, or a mapping with the keys seed and faults"
        )
    faults = []
    for number, entry in enumerate(document, start=1):
        try:
            faults.append(Fault.from_data(entry))
        except FaultError as error:
            # The error can quote anything that the file contains, of any length.
            message = printable(str(error), _LONGEST_TEXT)
            raise FaultError(f"{path}: fault {number}: {message}") from None
    return seed, tuple(faults)


def _seed(path: Path, value: Any) -> int | None:
    try:
        return None if value is None else int(whole(0)(value))
    except ValueError as error:
        raise FaultError(f"{path}: invalid seed {value!r}: expected {error}") from None


def _document(path: Path) -> Any:
    # Not at the top: setting a fault does not need the YAML parser.
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        content = read_regular(path, _MOST_BYTES).decode()
        documents = load_documents(content, _MOST_BYTES, _MOST_VALUES)
    except OSError as error:
        raise FaultError(f"{path}: {error.strerror}") from error
    except FileRejected as error:
        raise FaultError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise FaultError(f"{path}: {not_utf8(error)}") from error
    except ManifestError as error:
        raise FaultError(f"{path}: {error}") from error
    # The caller rejects None like any other document that is not a list or a mapping.
    return documents[0] if len(documents) == 1 else None
