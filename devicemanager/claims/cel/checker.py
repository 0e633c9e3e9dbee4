"""Check the types of a CEL expression, as the API server does before it stores the expression.

In:  a syntax tree, and an ``Environment`` with variables and functions.
Out: the same tree with a type in every node and overloads in every call; or the errors, with the
     messages of cel-go.

The rules are those of cel-go (checker/checker.go and cel/validator.go, v0.26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from devicemanager.claims.cel import types
from devicemanager.claims.cel.declarations import Library, Overload, type_identifiers
from devicemanager.claims.cel.parsing import Issue, NotSupported
from devicemanager.claims.cel.syntax import (
    Call,
    Const,
    Ident,
    ListLiteral,
    Loop,
    MapLiteral,
    Message,
    Node,
    Select,
    qualified_name,
)
from devicemanager.claims.cel.types import BOOL, DYN, ERROR, INT, Type
from devicemanager.claims.cel.values import UInt

_PROTOBUF = "google.protobuf."
"""Prefix of message types that Kubernetes supports and devicemanager does not support."""
_MAX_ISSUES = 100
"""Maximum number of errors that ``check`` returns."""


@attrs.frozen(eq=False)
class Environment:
    """Variables, types and functions that expressions can use."""

    variables: Mapping[str, Type]
    fields: Mapping[str, Mapping[str, Type]]
    """Message types by name. Each is a mapping from field name to field type."""
    library: Library


def check(root: Node, environment: Environment) -> list[Issue]:
    """Return the type errors in a syntax tree, in the order of their positions in the expression.

    Also set the type of each node and the overloads of each call.
    """
    checker = _Checker(environment)
    checker.visit(root)
    checker.finish()
    return in_order(checker.issues)


def in_order(issues: Sequence[Issue]) -> list[Issue]:
    """Return the errors sorted by their position in the source, at most the first 100."""
    return sorted(issues, key=lambda issue: issue.position)[:_MAX_ISSUES]


_CONSTANTS = {
    type(None): types.NULL,
    bool: BOOL,
    int: INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
}


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._types = types.Inference()
        self._scopes: list[dict[str, Type]] = [dict(environment.variables)]
        self._visited: list[Node] = []
        self.issues: list[Issue] = []

    def visit(self, node: Node) -> Type:
        """Return the type of a node. Set it in the node and its descendants."""
        match node:
            case Const():
                node.type = _CONSTANTS[type(node.value)]
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case ListLiteral():
                node.type = self._list(node)
            case MapLiteral():
                node.type = self._map(node)
            case Message():
                node.type = self._message(node)
            case Loop():
                node.type = self._loop(node)
        self._visited.append(node)
        return node.type

    def finish(self) -> None:
        """Replace the type variables in the types of all nodes by the inferred types."""
        for node in self._visited:
            node.type = self._types.resolve(node.type, free_is_dyn=True)

    def _fault(self, position: int, text: str) -> Type:
        self.issues.append(Issue(position, text))
        return ERROR

    def _undeclared(self, position: int, name: str) -> Type:
        if name.removeprefix(".").startswith(_PROTOBUF):
            raise NotSupported(f"type {name} is not available: use a list, a map or a scalar")
        return self._fault(position, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: Node, expected: Type, found: Type) -> Type:
        return self._fault(node.position, f"expected type '{expected}' but found '{found}'")

    def _lookup(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return type_identifiers().get(name) or _messages(self._environment).get(name)

    def _ident(self, node: Ident) -> Type:
        return self._lookup(node.name) or self._undeclared(node.position, node.name)

    def _select(self, node: Select) -> Type:
        name = None if node.is_test else qualified_name(node)
        found = self._lookup(name) if name else None
        if found is not None:
            return found
        result = self._field(node, node.operand, node.field, is_optional=False)
        return BOOL if node.is_test else self._types.resolve(result)

    def _field(self, node: Node, operand: Node, field: str, is_optional: bool) -> Type:
        """Return the type of a field of ``operand``."""
        type_ = self._types.resolve(self.visit(operand))
        target = type_.params[0] if type_.name == "optional_type" else type_
        result = DYN
        if target.name == "map":
            result = target.params[1]
        elif target in types.MESSAGES or target.name in self._environment.fields:
            result = self._message_field(node.position, target, field)
        elif target.is_variable:
            self._types.assign([DYN], [target])
        elif not target.is_dyn and target != ERROR:
            self._fault(node.position, f"type '{target}' does not support field selection")
        return types.optional_of(result) if target is not type_ or is_optional else result

    def _message_field(self, position: int, message: Type, field: str) -> Type:
        fields = self._environment.fields.get(message.name)
        if fields is None:
            return self._fault(position, f"unexpected failed resolution of '{message.name}'")
        found = fields.get(field)
        return found or self._fault(position, f"undefined field '{field}'")

    def _call(self, call: Call) -> Type:
        if call.function == "_?._":
            return self._optional_select(call)
        for argument in call.args:
            self.visit(argument)
        library = self._environment.library
        if call.target is None:
            name = call.function.removeprefix(".")
            overloads = library.get(name)
            if overloads is None:
                return self._undeclared(call.position, call.function)
            return self._resolve(call, name, overloads, call.args)
        prefix = qualified_name(call.target)
        qualified = f"{prefix}.{call.function}".removeprefix(".") if prefix else ""
        if qualified in library:
            call.function, call.target = qualified, None
            return self._resolve(call, qualified, library[qualified], call.args)
        self.visit(call.target)
        if call.function not in library:
            return self._undeclared(call.position, call.function)
        overloads = library[call.function]
        return self._resolve(call, call.function, overloads, [call.target, *call.args])

    def _optional_select(self, call: Call) -> Type:
        operand, field = call.args
        assert isinstance(field, Const)
        field.type = types.STRING
        result = self._field(call, operand, str(field.value), is_optional=True)
        call.overloads = self._environment.library["_?._"]
        return self._types.resolve(result)

    def _resolve(
        self, call: Call, name: str, overloads: tuple[Overload, ...], args: list[Node]
    ) -> Type:
        """Find the overloads of a call and return the type of its result."""
        found = [argument.type for argument in args]
        if name in ("_&&_", "_||_"):
            return self._logic(call, overloads, args)
        applicable: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.is_member != (call.target is not None):
                continue
            type_ = self._apply(overload, found)
            if type_ is None:
                continue
            applicable.append(overload)
            if result is None:
                result = type_
            elif not result.is_dyn and type_ != result:
                result = DYN
        if result is None:
            return self._no_overload(call, name, found)
        call.overloads = tuple(applicable)
        return result

    def _apply(self, overload: Overload, args: list[Type]) -> Type | None:
        """Return the type of the result if the overload accepts the arguments, else None."""
        if len(overload.params) != len(args):
            return None
        variables: types.Bindings = {}
        for type_ in (*overload.params, overload.result):
            self._add_variables(type_, variables)
        params = [types.instantiate(param, variables) for param in overload.params]
        if not self._types.assign(args, params):
            return None
        return self._types.resolve(types.instantiate(overload.result, variables))

    def _add_variables(self, type_: Type, variables: types.Bindings) -> None:
        if type_.is_variable and type_ not in variables:
            variables[type_] = self._types.new_variable()
        for param in type_.params:
            self._add_variables(param, variables)

    def _logic(self, call: Call, overloads: tuple[Overload, ...], args: list[Node]) -> Type:
        call.overloads = overloads
        result = BOOL
        for argument in args:
            if not self._types.assign([argument.type], [BOOL]):
                result = self._mismatch(argument, BOOL, argument.type)
        return result

    def _no_overload(self, call: Call, name: str, args: list[Type]) -> Type:
        shown = [str(self._types.resolve(each, free_is_dyn=True)) for each in args]
        receiver = f"{shown.pop(0)}." if call.target is not None else ""
        return self._fault(
            call.position,
            f"found no matching overload for '{name}' applied to '{receiver}({', '.join(shown)})'",
        )

    def _join(self, before: Type | None, found: Type) -> Type:
        """Return the common type of the elements of a literal.

        ``before``: the type of the elements so far; None before the first. ``found``: the type of
        the next element.
        """
        if before is None:
            return found
        if self._types.assign([before], [found]):
            return types.most_general(before, found)
        return DYN

    def _element(self, node: Node, is_optional: bool) -> Type:
        """Return the type of an element of a literal. For an optional element (``?element``),
        return the type of the value inside."""
        found = self.visit(node)
        if is_optional:
            if found.name == "optional_type":
                return found.params[0]
            if not found.is_dyn:
                self._mismatch(node, types.optional_of(found), found)
        return found

    def _list(self, node: ListLiteral) -> Type:
        element: Type | None = None
        for index, each in enumerate(node.elements):
            element = self._join(element, self._element(each, index in node.optional))
        return types.list_of(element or self._types.new_variable())

    def _map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self.visit(entry.key))
            found = self._element(entry.value, entry.is_optional)
            value = self._join(value, found)
        if key is None or value is None:
            key, value = self._types.new_variable(), self._types.new_variable()
        return types.map_of(key, value)

    def _message(self, node: Message) -> Type:
        name = node.name.removeprefix(".")
        found = self._lookup(name)
        if found is None or name.startswith(_PROTOBUF):
            return self._undeclared(node.position, node.name)
        message = found.params[0] if found.name == "type" and found.params else ERROR
        fields = self._environment.fields.get(message.name)
        if fields is None:
            return self._fault(node.position, f"'{message.name}' is not a message type")
        for position, field, value in node.fields:
            declared = self._message_field(position, message, field)
            type_ = self.visit(value)
            if not self._types.assign([declared], [type_]):
                self._fault(
                    position,
                    f"expected type of field '{field}' is '{declared}'"
                    f" but provided type is '{type_}'",
                )
        return message

    def _loop(self, loop: Loop) -> Type:
        self.visit(loop.range)
        accu = self.visit(loop.init)
        first, second = self._loop_variables(loop)
        self._scopes.append({loop.accu: accu})
        self._scopes.append({loop.var: first, **({loop.var2: second} if loop.var2 else {})})
        self._expect(loop.condition, BOOL)
        self._expect(loop.step, accu)
        self._scopes.pop()
        self.visit(loop.result)
        self._scopes.pop()
        return self._types.resolve(loop.result.type)

    def _expect(self, node: Node, type_: Type) -> None:
        if not self._types.assign([type_], [self.visit(node)]):
            self._mismatch(node, type_, node.type)

    def _loop_variables(self, loop: Loop) -> tuple[Type, Type]:
        """Return the types of a loop's variables. With one variable, the second type is unused."""
        type_ = self._types.resolve(loop.range.type)
        if type_.name == "list":
            (element,) = type_.params
            return (INT, element) if loop.var2 else (element, DYN)
        if type_.name == "map":
            return type_.params[0], type_.params[1]
        # cel-go accepts dyn as a range, but not google.protobuf.Any.
        if type_ in (DYN, ERROR) or type_.is_variable:
            self._types.assign([DYN], [type_])
            return DYN, DYN
        fault = self._fault(
            loop.range.position,
            f"expression of type '{type_}' cannot be range of a comprehension"
            " (must be list, map, or dynamic)",
        )
        return fault, fault


def _messages(environment: Environment) -> dict[str, Type]:
    """Return the message types by name. As an identifier, such a name evaluates to a type."""
    return {name: types.type_of(Type(name)) for name in environment.fields}
