"""Read and check the fields of an untrusted mapping, and collect all errors."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from devicemanager.core.quantity import Quantity
from devicemanager.objects.manifests.errors import FieldError, invalid, plain, required, wrong_type

UNKNOWN_FIELD = "unknown field"
"""Text of the error for a field that the API does not have."""

_T = TypeVar("_T")


def json_value(value: object) -> Any:
    """Convert a value from YAML or Python into JSON types.

    Sets become lists. Dates, bytes, other values without a JSON type, and all keys of mappings
    become strings. Lone surrogates are replaced.
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, float):
        # JSON has neither infinity nor NaN.
        return value if math.isfinite(value) else str(value)
    # YAML reads an unquoted time as a date object, but times in the API are RFC 3339 texts.
    if isinstance(value, datetime.date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {_utf8(str(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if isinstance(value, (set, frozenset)):
        # Sorted, because a set has no order: equal sets must give equal documents.
        return sorted(_utf8(str(each)) for each in value)
    return _utf8(str(value))


def _utf8(text: str) -> str:
    """Replace lone surrogates in ``text``, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


_INT64 = range(-(2**63), 2**63)


class Fields:
    """Reader of the fields of one mapping, which reads each field once.

    For an absent, null or invalid field, the methods return the default. An invalid field also
    adds an error to ``errors``, and reading continues, so that a user sees all errors.
    ``finish`` adds an error for each field that was not read.
    """

    def __init__(self, value: object, path: str, errors: list[FieldError]) -> None:
        self.path = path
        self.errors = errors
        self._left: dict[Any, Any] = {}
        if isinstance(value, Mapping):
            # A copy, because each read removes a field.
            self._left = dict(value)
        elif value is not None:
            errors.append(wrong_type(path or "object", "a mapping", value))

    def under(self, name: str) -> str:
        """Return the full path of a field, such as ``spec.devices[0].name``."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str) -> object:
        """Return the unchecked value of a field; None if it is absent."""
        return self._left.pop(name, None)

    def take_any_case(self, name: str) -> object:
        """Return the unchecked value of a field, ignoring the case of its name.

        Add an error if the field is present in two spellings.
        """
        spelled = [
            key for key in self._left if isinstance(key, str) and key.lower() == name.lower()
        ]
        values = [self._left.pop(key) for key in spelled]
        if len(values) > 1:
            self.errors.append(invalid(self.under(name), spelled[1], "the field is given twice"))
        return values[0] if values else None

    def text(self, name: str) -> str:
        """Read a string field; return an empty string if it is absent or invalid."""
        return self.as_text(self.take(name), name)

    def as_text(self, value: object, name: str) -> str:
        """Return ``value`` if it is Unicode text, else an empty string.

        If the value is neither None nor Unicode text, add an error for the field ``name``.
        """
        text = self._checked(value, name, str, "a string", "")
        if text.isascii() or text == _utf8(text):
            return text
        self.errors.append(invalid(self.under(name), text, "must be Unicode text"))
        return ""

    def boolean(self, name: str) -> bool:
        """Read a boolean field; return False if it is absent or invalid."""
        return self._checked(self.take(name), name, bool, "true or false", False)

    def integer(self, name: str) -> int | None:
        """Read a 64-bit integer field; return None if it is absent or invalid."""
        value = self.take(name)
        if value is None:
            return None
        # In Python, True and False are integers.
        if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
            self.errors.append(wrong_type(self.under(name), "a 64-bit integer", value))
            return None
        return value

    def optional_text(self, name: str) -> str | None:
        """Read a string field; return None if it is absent, an empty string if it is invalid."""
        value = self.take(name)
        return None if value is None else self.as_text(value, name)

    def quantity(self, name: str) -> Quantity | None:
        """Read a quantity field; return None if it is absent or invalid."""
        value = self.take(name)
        return None if value is None else self._quantity(value, self.under(name))

    def required_quantity(self, name: str) -> Quantity:
        """Read a required quantity field; if it is absent or invalid, add an error and return 0."""
        value = self.take(name)
        if value is None:
            self.errors.append(required(self.under(name)))
            return Quantity(0)
        return self._quantity(value, self.under(name)) or Quantity(0)

    def _quantity(self, value: object, path: str) -> Quantity | None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.errors.append(wrong_type(path, "a quantity such as 500m or 1Gi", value))
            return None
        try:
            # A YAML or JSON number is a quantity without quotes.
            return Quantity.parse(value if isinstance(value, str) else repr(value))
        except ValueError as error:
            self.errors.append(invalid(path, value, str(error)))
            return None

    def quantities(self, name: str) -> dict[str, Quantity]:
        """Read a field that maps names to quantities; omit invalid entries."""
        value, path = self.take(name), self.under(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.errors.append(wrong_type(path, "a mapping", value))
            return {}
        found = {}
        for key, amount in value.items():
            quantity = self._quantity(amount, f"{path}[{plain(key)}]")
            if not isinstance(key, str):
                self.errors.append(wrong_type(path, "a mapping with strings as keys", key))
            elif quantity is not None:
                found[key] = quantity
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a field that is a list of strings."""
        return tuple([self.as_text(item, f"{name}[{i}]") for i, item in self._items(name)])

    def each(self, name: str, read: Callable[[Fields], _T]) -> tuple[_T, ...]:
        """Read a field that is a list of mappings, and convert each mapping with ``read``."""
        path = self.under(name)
        found = []
        for number, item in self._items(name):
            if not isinstance(item, Mapping):
                self.errors.append(wrong_type(f"{path}[{number}]", "a mapping", item))
                continue
            fields = Fields(item, f"{path}[{number}]", self.errors)
            found.append(read(fields))
            fields.finish()
        return tuple(found)

    def raw_items(self, name: str) -> tuple[Any, ...]:
        """Read a field that is a list of any values, and return the items as JSON values."""
        return tuple([json_value(item) for _, item in self._items(name)])

    def _items(self, name: str) -> Iterator[tuple[int, object]]:
        value = self._checked(self.take(name), name, list, "a list", [])
        return enumerate(value)

    def inner(self, name: str) -> Fields:
        """Return a reader of a nested mapping; the caller must call its ``finish``."""
        return Fields(self.take(name), self.under(name), self.errors)

    def rest(self) -> dict[str, Any]:
        """Read all remaining fields, and return them as JSON values."""
        left, self._left = self._left, {}
        return {_utf8(str(key)): json_value(value) for key, value in left.items()}

    def finish(self) -> None:
        """Add an error for each field that was not read."""
        for name in self._left:
            self.errors.append(FieldError(self.under(plain(name)), UNKNOWN_FIELD))

    def _checked(self, value: object, name: str, kind: type[_T], expected: str, default: _T) -> _T:
        if value is None:
            return default
        if not isinstance(value, kind):
            self.errors.append(wrong_type(self.under(name), expected, value))
            return default
        return value
