"""One fault: what is to happen, to whom and how often; as a value and as a line of text.

``reject-register:code=UNAVAILABLE,text=not now,times=2,resource=vendor.com/gpu``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import attrs

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.errors import RequestError
from devicemanager.faults.injection_point import InjectionPoint
from devicemanager.faults.kinds import KINDS, RPCS, Kind, Option, choice, probability, text, whole

__all__ = ["AT", "COMMON", "NOW", "Fault", "FaultError"]

NOW = "now"
_AT = (
    NOW,
    *(
        each.value
        for each in InjectionPoint
        if each not in (InjectionPoint.START, InjectionPoint.CALL)
    ),
    *RPCS,
)

COMMON = (
    Option("times", whole(1), "how often it fires at most (default: until it is cleared)"),
    Option("after", whole(0), "how many occasions it lets pass before", 0),
    Option("probability", probability, "how likely it fires at each occasion", 1.0),
    Option("seed", whole(0), "decides on the occasions (default: the run's)"),
    Option("resource", text, "only for this resource"),
    Option("plugin", text, "only for the plugin whose socket has this file name"),
)
"""What can be said of every fault."""
AT = Option(
    "at",
    choice(*_AT),
    f"when it is executed: {', '.join(_AT)}; at a point once by default",
    NOW,
)
"""What can be said of actions, besides."""

# A comma within a text needs no escape unless a name and "=" follow.
_COMMA = re.compile(r"(?<!\\),(?=\s*[a-z_]+=)")


class FaultError(RequestError):
    """A fault that cannot be. The text is one line and names the choices."""


def _fixed(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(options))


@attrs.frozen(repr=False)
class Fault:
    """A fault as it was asked for; see :data:`devicemanager.faults.KINDS` for the kinds and
    their options. Make one by :meth:`of`, :meth:`parse` or :meth:`from_data`.
    """

    kind: Kind
    times: int | None = None
    """How often it fires at most; None is until it is cleared."""
    after: int = 0
    probability: float = 1.0
    seed: int | None = None
    resource: str | None = None
    plugin: str | None = None
    at: str = NOW
    options: Mapping[str, Any] = attrs.field(factory=dict, converter=_fixed)
    """The kind's own options by name, all of them, with their defaults."""

    @classmethod
    def of(cls, kind: str, /, **given: Any) -> Self:
        """A fault of a kind with options by name, as text or as values. Raises FaultError."""
        found = KINDS.get(kind)
        if found is None:
            raise FaultError(f"unknown fault {kind!r}: choose from {', '.join(KINDS)}")
        common = (*COMMON, AT) if found.is_action else COMMON
        known = {option.name: option for option in (*found.options, *common)}
        for name in given:
            if name not in known:
                raise FaultError(f"{kind} has no option {name!r}: choose from {', '.join(known)}")
        values = {name: _value(found, option, given) for name, option in known.items()}
        own = {option.name: values.pop(option.name) for option in found.options}
        fault = cls(found, **values, options=own)
        return attrs.evolve(fault, times=1) if fault._is_once else fault

    def __attrs_post_init__(self) -> None:
        name = self.kind.name
        if self.resource is not None and not is_extended_resource_name(self.resource):
            raise FaultError(
                f"{name}: resource is named with its domain, such as vendor.com/gpu: "
                f"not {self.resource!r}"
            )
        if self.is_immediate and (self.times, self.after, self.probability) != (None, 0, 1.0):
            raise FaultError(
                f"{name} is executed at once: times, after and probability need at=POINT, "
                f"POINT being one of {', '.join(_AT[1:])}"
            )

    @property
    def _is_once(self) -> bool:
        return self.kind.is_action and not self.is_immediate and self.times is None

    @property
    def is_immediate(self) -> bool:
        """Whether it is an action that is executed as soon as it is set."""
        return self.kind.is_action and self.at == NOW

    @property
    def point(self) -> InjectionPoint | None:
        """Where it is asked for; None if it is executed at once."""
        if self.kind.point is not None:
            return self.kind.point
        if self.is_immediate:
            return None
        return InjectionPoint.CALL if self.at in RPCS else InjectionPoint(self.at)

    @property
    def rpc(self) -> str | None:
        """The one call, or method of PodResources, that it concerns; None: all."""
        if self.at in RPCS:
            return self.at
        return self.options.get("rpc") or self.options.get("method")

    @property
    def phase(self) -> str:
        """Of a fault of calls: whether it fires ``before`` the call is made or ``after`` it was
        answered."""
        return "after" if self.options.get("when") == "after" else "before"

    @classmethod
    def parse(cls, line: str) -> Self:
        """From ``KIND`` or ``KIND:NAME=VALUE,NAME=VALUE``. A comma in a text is written
        ``\\,`` where ``name=`` follows. Raises FaultError."""
        kind, _, rest = line.strip().partition(":")
        given: dict[str, str] = {}
        for part in _COMMA.split(rest) if rest else ():
            name, equals, value = part.partition("=")
            name = name.strip()
            if not equals:
                raise FaultError(
                    f"fault {line!r}: {part!r} is not NAME=VALUE: write KIND:NAME=VALUE,…, such as "
                    "reject-register:code=UNAVAILABLE,times=2"
                )
            if name in given:
                raise FaultError(f"fault {line!r}: {name} is given twice")
            given[name] = value.replace("\\,", ",")
        return cls.of(kind, **given)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """From a line of text, or from a mapping with ``kind`` and options. Raises
        FaultError."""
        if isinstance(data, str):
            return cls.parse(data)
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            raise FaultError(
                "a fault is a line such as reject-register:times=2, or a mapping with kind and "
                f"options: not {data!r}"
            )
        # What is null is not given.
        given = {str(name): value for name, value in data.items() if value is not None}
        return cls.of(given.pop("kind"), **given)

    def as_data(self) -> dict[str, Any]:
        """``kind``, what is not at its default, and the kind's own options: what
        ``from_data`` takes."""
        common = (*COMMON, AT) if self.kind.is_action else COMMON
        told = {option.name: getattr(self, option.name) for option in common}
        return {
            "kind": self.kind.name,
            **{name: value for name, value in self.options.items() if value is not None},
            **{each.name: told[each.name] for each in common if told[each.name] != each.default},
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
                f"{kind.name} needs {option.name}: write {kind.name}:{option.name}=…, "
                f"{option.meaning}"
            )
        return option.default
    value = given[option.name]
    try:
        return option.default if value is None else option.read(value)
    except ValueError as error:
        raise FaultError(f"{kind.name}: {option.name} is {error}: not {value!r}") from None


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return _COMMA.sub(r"\\,", str(value))
