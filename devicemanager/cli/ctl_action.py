"""Actions of ``devicemanager ctl``, made from the operations of a control API.

An ``Action`` names an operation. Its arguments follow from the operation's path, query and body,
their help from the descriptions there, and what it prints from the answer. An ``Action`` says
only what the command line does differently.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
from msgspec import NODEFAULT, inspect
from msgspec.structs import FieldInfo

from devicemanager.cli.ctl_client import pods_among, print_line, show
from devicemanager.cli.files import add_file
from devicemanager.cli.options import CommandParser, add_format, command
from devicemanager.cli.output import clean
from devicemanager.cli.settings_options import number
from devicemanager.control.operation import Operation, OperationTable, Text
from devicemanager.kubelet.waits import WaitTimeout

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.kubelet.pods.pod_info import PodInfo

LIST: Final = ("table", "wide", "json", "yaml", "name")
"""Output formats of a list."""
ONE: Final = ("yaml", "json")
"""Output formats of one thing."""
LINES: Final = ("text", "json")
"""Output formats of lines."""

Run = Callable[[Any, argparse.Namespace], int]
"""Carries out an action with a client; returns the exit status."""


Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Return the parameters of ``add_argument``."""
    return names, options


@attrs.frozen
class Action:
    """One action of ``ctl``."""

    name: str
    """The last of its words, such as ``pod`` of ``wait pod``."""
    operation: str
    """The ``operationId`` of the operation that it is made from."""
    help: str = ""
    """In place of the operation's summary."""
    done: str | Callable[[Mapping[str, Any]], str] = ""
    """What is printed afterwards: a format of the arguments, ``pod`` and ``answer``."""
    off: tuple[str, object, str] | None = None
    """A field, its value with ``--off``, and what is printed then."""
    many: str = ""
    """The argument of which there can be several."""
    positional: Container[str] = ()
    """Optional fields that are given by position."""
    left_out: Container[str] = ()
    """Fields that cannot be given."""
    formats: Sequence[str] = ()
    """Output formats; the first is the default."""
    timeout: float = 0.0
    """Seconds for the answer, in addition to the usual ones."""
    more: Sequence[Argument] = ()
    """More arguments."""
    run: Run | None = None
    """In place of sending the request and printing ``done`` or the answer."""


class Actions:
    """The actions on one control API."""

    prefix = ""
    """Begins what is printed after an action: a format of the arguments."""

    def __init__(
        self,
        table: OperationTable,
        connected: Callable[[argparse.Namespace], AbstractContextManager[Any]],
    ) -> None:
        """``connected`` returns a client."""
        self._table = table
        self._connected = connected

    def add(self, subparsers: Subparsers, *actions: Action) -> None:
        """Add actions."""
        for each in actions:
            self._add(subparsers, each, self._table[each.operation])

    def _add(self, subparsers: Subparsers, action: Action, operation: Operation[Any]) -> None:
        act = action.run or _Request(self, action, operation).send

        # The same for all actions: a wait that times out is the answer "no".
        def run(args: argparse.Namespace) -> int:
            try:
                with self._connected(args) as client:
                    return act(client, args)
            except WaitTimeout as error:
                for line in str(error).splitlines():
                    print(clean(line), file=sys.stderr)
                return 1

        # The summary is written for the OpenAPI document; many actions replace it.
        parser = command(subparsers, action.name, run, action.help or _lower(operation.summary))
        # These flags count before the action, too, so there is no default here.
        add_where(parser, argparse.SUPPRESS)
        _add_arguments(parser, action, operation)
        for names, options in action.more:
            parser.add_argument(*names, **options)
        if action.formats:
            add_format(parser, *action.formats)

    def check(self, client: Any, args: argparse.Namespace) -> None:
        """Check the arguments before the first request. Raises CommandError."""

    def pods(self, client: Any, args: argparse.Namespace) -> tuple[Sequence[PodInfo], str]:
        """Return the pods that can be named, and advice for a name that is none of them."""
        raise NotImplementedError


def add_where(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Add the flags that select the kubelet or the nodes."""
    group = parser.add_argument_group("where")
    group.add_argument(
        "--control",
        default=default,
        metavar="WHERE",
        help="the --root of `run` or `join`, its control socket, or http://HOST:PORT (default: "
        "$DEVICEMANAGER_CONTROL)",
    )
    add_file(
        group,
        "--token-file",
        "control.token in that root, for http (default: $DEVICEMANAGER_TOKEN_FILE)",
        default=default,
    )


def _lower(summary: str) -> str:
    """Return a summary as a help text: its first sentence, in lower case."""
    # The OpenAPI document has whole sentences, argparse's lists have fragments.
    first = summary.partition(". ")[0].removesuffix(".")
    return first[0].lower() + first[1:]


# -- arguments ---------------------------------------------------------------------------

POD_HELP: Final = "a pod: its name, NAMESPACE/NAME, or UID"
# Names that the command line has in place of those in the paths of the API.
_PATH: Final = {
    "uid": ("pod", POD_HELP),
    "container": ("container", "name of the container"),
    "node": ("node", "name of the node"),
}
"""The argument for each name in a path, and its help."""
_SHORT: Final = {"follow": ("-f",)}


def _add_arguments(parser: CommandParser, action: Action, operation: Operation[Any]) -> None:
    for parameter in operation.parameters:
        name, help_ = _PATH[parameter]
        more: dict[str, Any] = {} if parameter == "uid" else {"type": filled}
        dest = name
        if name == action.many:
            dest, more["nargs"] = f"{name}s", "+"
        parser.add_argument(dest, metavar=name.upper(), help=help_, **more)
    # Manifests and claims come from files, all other bodies from options.
    if isinstance(operation.body, Text):
        help_ = f"{operation.body.value}; - is standard input"
        add_file(parser, "files", help_, nargs="+")
    # Fields come after the names in the path, so that positional ones are in the order of use:
    # node, resource, devices.
    for field in _fields(operation):
        if action.off is not None and field.name == action.off[0]:
            either = parser.add_mutually_exclusive_group(required=field.required)
            if not isinstance(_unwrapped(field)[0], inspect.BoolType):
                _add_field(either, field, action)
            either.add_argument("--off", action="store_true", help="undo the action")
        elif field.name not in action.left_out:
            _add_field(parser, field, action)


def _fields(operation: Operation[Any]) -> Sequence[FieldInfo]:
    shape = operation.body if isinstance(operation.body, type) else operation.query
    return () if shape is None else msgspec.structs.fields(shape)


def _unwrapped(field: FieldInfo) -> tuple[inspect.Type, str, float | None]:
    """Return the type of a field without None, its description and its lower limit."""
    info, description = inspect.type_info(field.type), ""
    # Annotations nest, as in Annotated[Annotated[int, ...] | None, ...]: the outermost description
    # counts, and the limit of the innermost type.
    while True:
        match info:
            case inspect.Metadata(type=inner, extra_json_schema=schema):
                description = description or (schema or {}).get("description", "")
                info = inner
            case inspect.UnionType(types=(inner, inspect.NoneType())):
                info = inner
            case _:
                return info, description, getattr(info, "ge", None)


def _add_field(parser: argparse._ActionsContainer, field: FieldInfo, action: Action) -> None:
    """Add the argument for a field; nothing if its type has no form on a command line."""
    info, description, least = _unwrapped(field)
    word = field.name.removesuffix("s") if isinstance(info, _LISTS) else field.name
    flag = f"--{word.replace('_', '-')}"
    # A flag exists for the value that is not the default.
    if isinstance(info, inspect.BoolType):
        if field.default:
            flag, description = f"--no-{word}", f"do not {description}"
        kind = "store_false" if field.default else "store_true"
        short = _SHORT.get(field.name, ())
        parser.add_argument(*short, flag, dest=field.name, action=kind, help=description)
        return
    more = _argument_type(info, least)
    if more is None:
        return
    if "choices" not in more:
        more.setdefault("metavar", word.upper())
    if isinstance(info, inspect.FloatType):
        description = description.replace(", in seconds", "") + ", such as 30s or 2m"
    if action.off is not None and field.name == action.off[0] and isinstance(info, inspect.StrType):
        more["type"] = filled  # empty is the value of --off
    if field.required and not isinstance(parser, argparse._MutuallyExclusiveGroup):
        # A required field is given by position. Each value of `many` makes one request.
        more |= {"nargs": "+"} if word == action.many else {}
        dest = f"{word}s" if word == action.many else field.name
        parser.add_argument(dest, help=description, **more)
    elif field.name in action.positional:
        nargs = "*" if isinstance(info, _LISTS) else "?"
        parser.add_argument(field.name, nargs=nargs, help=description, **more)
    else:
        if isinstance(info, _LISTS):
            more["action"] = "append"
            if "repeated" not in description:  # the API has a list and no parameter to repeat
                description += "; can be repeated"
        # argparse's default stays None, so that the request leaves the field out.
        help_ = description + _default_text(field)
        parser.add_argument(flag, dest=field.name, help=help_, **more)


_LISTS: Final = (inspect.ListType, inspect.VarTupleType)


def _argument_type(info: inspect.Type, least: float | None) -> dict[str, Any] | None:
    """Return argparse's parameters for a type; None if it has no form on a command line."""
    match info:
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _argument_type(item, None)
        case inspect.StrType():
            return {}
        case inspect.IntType():
            kind = number(int) if least is None else number(int, least)
            return {"type": kind, "metavar": "N"}
        # Every number with a fraction is a duration.
        case inspect.FloatType():
            return {"type": seconds, "metavar": "TIME"}
        case inspect.EnumType(cls=cls):
            return {"choices": [each.value for each in cls]}
        case inspect.LiteralType(values=values):
            return {"choices": values}
    return None


def _default_text(field: FieldInfo) -> str:
    # An empty default needs no words; the description says what happens without the option.
    value = field.default
    if value in (NODEFAULT, None, "", ()):
        return ""
    return f" (default: {f'{value:g}s' if isinstance(value, float) else value})"


def filled(text: str) -> str:
    """Parse a text that must not be empty."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def seconds(text: str) -> float:
    """Parse a duration: ``90``, ``90s``, ``5m``, ``1h30m``."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    form = r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?"
    found = re.fullmatch(form, text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"invalid duration {text!r}: use 90, 90s, 5m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + rest


# -- requests ----------------------------------------------------------------------------


@attrs.frozen
class _Request:
    """Sender of the request of an action, or of one for each of several arguments."""

    actions: Actions
    action: Action
    operation: Operation[Any]

    def send(self, client: Any, args: argparse.Namespace) -> int:
        given = vars(args)
        # Before the first request, so that a mistake in the second argument changes nothing.
        self.actions.check(client, args)
        for target in self._targets(client, args):
            path = [str({**given, **target}[name]) for name in self.operation.parameters]
            # What is not given is left out, so that the server's defaults count.
            fields = {
                each.name: value
                for each in _fields(self.operation)
                if (value := target.get(each.name, given.get(each.name))) is not None
            }
            if self.action.off is not None and args.off:
                fields[self.action.off[0]] = self.action.off[1]
            # Lines are printed as they come, which can take until Ctrl-C.
            if self.operation.is_stream:
                for line in client.read(self.operation.name, fields):
                    print_line(line, args.output)
                continue
            answer, fields = self._ask(client, path, fields)
            self._print(args, {**given, **target, **fields, "answer": answer})
        return 0

    def _ask(
        self, client: Any, path: Sequence[str], fields: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the answer, and the fields with their defaults."""
        name, timeout = self.operation.name, self.action.timeout
        if not isinstance(self.operation.body, type):
            return client.ask(name, *path, query=fields, timeout=timeout), fields
        # The shape fills in the defaults; the server checks the values.
        body = self.operation.body(**fields)
        timeout += getattr(body, "timeout", 0.0)
        return client.ask(name, *path, body=body, timeout=timeout), msgspec.structs.asdict(body)

    def _targets(self, client: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """Yield what differs between the requests."""
        many = self.action.many
        # Users name pods by name; the operations want UIDs.
        if "uid" in self.operation.parameters:
            names = args.pods if many == "pod" else [args.pod]
            # All names are resolved before the first request.
            for pod in pods_among(*self.actions.pods(client, args), names):
                yield {"uid": pod.uid, "pod": pod.title}
        elif many:
            for value in dict.fromkeys(getattr(args, f"{many}s")):
                yield {many: value}
        else:
            yield {}

    def _print(self, args: argparse.Namespace, facts: Mapping[str, Any]) -> None:
        action, answer = self.action, facts["answer"]
        # An action without formats confirms in one line, as kubectl does.
        if action.formats:
            (print_line if action.formats == LINES else show)(answer, args.output)
            return
        done = action.off[2] if action.off is not None and args.off else action.done
        words = {
            name: ",".join(map(str, value)) if isinstance(value, list) else value
            for name, value in facts.items()
        }
        text = done(words) if callable(done) else done.format(**words)
        if text:
            print(clean(self.actions.prefix.format(**words) + text))
