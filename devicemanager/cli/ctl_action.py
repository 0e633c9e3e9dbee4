"""Actions of ``devicemanager ctl``, derived from the operations of a control API.

An ``Action`` names an operation. The path, query and body of the operation define the arguments of
the action and their help texts. The response defines the output. The optional fields of an
``Action`` override these defaults.
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
from devicemanager.cli.options import LIST_FORMATS, CommandParser, add_format, command
from devicemanager.cli.output import clean, lines_of
from devicemanager.cli.settings_options import number
from devicemanager.control.operation import Operation, OperationTable, Text
from devicemanager.kubelet.waits import WaitTimeout

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.kubelet.pods.pod_info import PodInfo

LIST: Final = LIST_FORMATS
"""Output formats of a list."""
ONE: Final = ("yaml", "json")
"""Output formats of a single object."""
LINES: Final = ("text", "json")
"""Output formats of events and calls, which are printed one per line."""

Run = Callable[[Any, argparse.Namespace], int]
"""Function that performs an action with a client and the arguments, and returns the exit status."""


Argument = tuple[tuple[str, ...], dict[str, Any]]


def argument(*names: str, **options: Any) -> Argument:
    """Return an ``Argument``: a pair of the names and the options for argparse's
    ``add_argument``."""
    return names, options


@attrs.frozen
class Action:
    """Subcommand of ``ctl``, such as ``admit``. It calls one operation of the control API.

    The operation defines the arguments, the help text and the output. The optional fields of the
    action override these parts.
    """

    name: str
    """The last word of the action on the command line, such as ``pod`` of ``wait pod``."""
    operation: str
    """The ``operationId`` of the operation that the action calls."""
    help: str = ""
    """Help text; by default the operation's summary."""
    done: str | Callable[[Mapping[str, Any]], str] = ""
    """Text to print after success: a format string, or a function that returns the text.

    The text can contain each argument of the action by its name, and the response as ``answer``.
    For an operation on a pod, ``pod`` is the pod's ``namespace/name``.
    """
    off: tuple[str, object, str] | None = None
    """The flag ``--off``: the name of the request field that it sets, the value of this field, and
    the text to print after success. None if the action has no such flag."""
    many: str = ""
    """Name of the argument that can have several values; each value makes one request."""
    positional: Container[str] = ()
    """Names of the operation's optional fields that become positional arguments."""
    left_out: Container[str] = ()
    """Names of the operation's fields for which the action has no arguments."""
    formats: Sequence[str] = ()
    """Output formats of the response; the first one is the default. If empty, the text of the field
    ``done`` is printed instead of the response."""
    timeout: float = 0.0
    """Seconds to wait for the response, in addition to the client's timeout."""
    more: Sequence[Argument] = ()
    """Additional arguments of the action, each created with the function ``argument``."""
    files: str = ""
    """Help text for the argument FILE; by default the description of the operation's body."""
    run: Run | None = None
    """Function to call instead of sending the request and printing the result."""


class Actions:
    """Builder of the subcommands of ``ctl`` that use one of the two control APIs: that of one
    kubelet, or that of nodes in a cluster."""

    prefix = ""
    """Text before each printed result: a format string such as ``node {node}:``. Its fields are
    arguments of the action."""

    def __init__(
        self,
        table: OperationTable,
        connected: Callable[[argparse.Namespace], AbstractContextManager[Any]],
    ) -> None:
        """Create the builder for the operations in ``table``.

        ``connected`` is called with the arguments of the command line, which include the address.
        It returns a context manager that yields a client of the control API.
        """
        self._table = table
        self._connected = connected

    def add(self, subparsers: Subparsers, *actions: Action) -> None:
        """Add a subcommand for each action."""
        for each in actions:
            self._add(subparsers, each, self._table[each.operation])

    def _add(self, subparsers: Subparsers, action: Action, operation: Operation[Any]) -> None:
        act = action.run or _Request(self, action, operation).send

        # For all actions, a wait that times out is a negative result: exit status 1.
        def run(args: argparse.Namespace) -> int:
            try:
                with self._connected(args) as client:
                    return act(client, args)
            except WaitTimeout as error:
                for line in lines_of(str(error)):
                    print(line, file=sys.stderr)
                return 1

        # The summary is written for the OpenAPI document. Many actions have their own help.
        parser = command(subparsers, action.name, run, action.help or _lower(operation.summary))
        # These flags can also be before the action, so a default here would overwrite them.
        add_where(parser, argparse.SUPPRESS)
        _add_arguments(parser, action, operation)
        for names, options in action.more:
            parser.add_argument(*names, **options)
        if action.formats:
            add_format(parser, *action.formats)

    def check(self, client: Any, args: argparse.Namespace) -> None:
        """Check the arguments before the first request is sent. Raises CommandError."""

    def pods(self, client: Any, args: argparse.Namespace) -> tuple[Sequence[PodInfo], str]:
        """Return all pods to which the arguments can refer, and a hint for the error about an
        unknown pod."""
        raise NotImplementedError


def add_where(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Add the flags that select the control API: ``--control`` and ``--token-file``."""
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
    """Return the first sentence of a summary as a help text, starting in lower case and without a
    period."""
    # Summaries in the OpenAPI document are sentences; help texts of argparse are not.
    first = summary.partition(". ")[0].removesuffix(".")
    return first[0].lower() + first[1:]


# -- arguments ---------------------------------------------------------------------------

POD_HELP: Final = "a pod: its name, NAMESPACE/NAME, or UID"
# The command line has other argument names than the paths of the API.
_PATH: Final = {
    "uid": ("pod", POD_HELP),
    "container": ("container", "name of the container"),
    "node": ("node", "name of the node"),
    "namespace": ("namespace", "namespace of the object"),
    "name": ("name", "name of the object"),
    "kind": ("kind", "ResourceClaim, ResourceSlice, DeviceClass or ResourceClaimTemplate"),
}
"""The command-line argument for each parameter of a path, and its help text."""
_SHORT: Final = {"follow": ("-f",)}


def _add_arguments(parser: CommandParser, action: Action, operation: Operation[Any]) -> None:
    for parameter in operation.parameters:
        name, help_ = _PATH[parameter]
        more: dict[str, Any] = {} if parameter == "uid" else {"type": filled}
        dest = name
        if name == action.many:
            dest, more["nargs"] = f"{name}s", "+"
        parser.add_argument(dest, metavar=name.upper(), help=help_, **more)
    # Manifests and claims are read from files. All other bodies are set by options.
    if isinstance(operation.body, Text):
        help_ = f"{action.files or operation.body.value}; - is standard input"
        add_file(parser, "files", help_, nargs="+")
    # Fields are added after the path's names, so that positional arguments have the usual order:
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
    """Return the type of a field without None, its description, and its lower limit or None."""
    info, description = inspect.type_info(field.type), ""
    # Annotations can be nested, as in Annotated[Annotated[int, ...] | None, ...]. The outermost
    # description and the limit of the innermost type are used.
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
    """Add the argument for a field. Add nothing if the field's type has no form on a command
    line."""
    info, description, least = _unwrapped(field)
    word = field.name.removesuffix("s") if isinstance(info, _LISTS) else field.name
    flag = f"--{word.replace('_', '-')}"
    # A boolean becomes a flag that sets the value other than the default.
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
        more["type"] = filled  # only --off sets the empty text
    if field.required and not isinstance(parser, argparse._MutuallyExclusiveGroup):
        # A required field is a positional argument. Each value of `many` makes one request.
        more |= {"nargs": "+"} if word == action.many else {}
        dest = f"{word}s" if word == action.many else field.name
        parser.add_argument(dest, help=description, **more)
    elif field.name in action.positional:
        nargs = "*" if isinstance(info, _LISTS) else "?"
        parser.add_argument(field.name, nargs=nargs, help=description, **more)
    else:
        if isinstance(info, _LISTS):
            more["action"] = "append"
            if "repeated" not in description:  # a JSON list, whose description does not say it
                description += "; can be repeated"
        # argparse's default is None, so that the request omits the field.
        help_ = description + _default_text(field)
        parser.add_argument(flag, dest=field.name, help=help_, **more)


_LISTS: Final = (inspect.ListType, inspect.VarTupleType)


def _argument_type(info: inspect.Type, least: float | None) -> dict[str, Any] | None:
    """Return argparse's parameters for a type. Return None if the type has no form on a command
    line."""
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
    # An empty default is not shown: the description says what happens without the option.
    value = field.default
    if value in (NODEFAULT, None, "", ()):
        return ""
    return f" (default: {f'{value:g}s' if isinstance(value, float) else value})"


def filled(text: str) -> str:
    """Return a text unchanged. Raises ArgumentTypeError if it is empty."""
    if not text:
        raise argparse.ArgumentTypeError("invalid value '': expected a text that is not empty")
    return text


def seconds(text: str) -> float:
    """Parse a duration such as ``90``, ``90s``, ``5m`` or ``1h30m``, and return it in seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    form = r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?"
    found = re.fullmatch(form, text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"invalid duration {text!r}: use 90, 90s, 5m or 1h30m")
    hours, minutes, secs = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + secs


# -- requests ----------------------------------------------------------------------------


@attrs.frozen
class _Request:
    """Sender of an action's requests: one, or one for each value of the argument that ``many``
    names."""

    actions: Actions
    action: Action
    operation: Operation[Any]

    def send(self, client: Any, args: argparse.Namespace) -> int:
        given = vars(args)
        # Checked before the first request, so that an invalid second argument changes nothing.
        self.actions.check(client, args)
        for target in self._targets(client, args):
            path = [str({**given, **target}[name]) for name in self.operation.parameters]
            # Omitted options are omitted from the request, so that the server's defaults apply.
            fields = {
                each.name: value
                for each in _fields(self.operation)
                if (value := target.get(each.name, given.get(each.name))) is not None
            }
            if self.action.off is not None and args.off:
                fields[self.action.off[0]] = self.action.off[1]
            # Lines of a stream are printed as they arrive, possibly until Ctrl-C.
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
        """Send the request. Return the response, and the fields of the request with defaults."""
        name, timeout = self.operation.name, self.action.timeout
        if not isinstance(self.operation.body, type):
            return client.ask(name, *path, query=fields, timeout=timeout), fields
        # The body's type adds the defaults; the server checks the values.
        body = self.operation.body(**fields)
        timeout += getattr(body, "timeout", 0.0)
        return client.ask(name, *path, body=body, timeout=timeout), msgspec.structs.asdict(body)

    def _targets(self, client: Any, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """Yield, for each request, the arguments that only this request has."""
        many = self.action.many
        # Users name pods by name, but the operations need UIDs.
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
