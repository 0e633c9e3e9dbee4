"""Print tables, JSON and escaped text on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.core.printable import is_printable

if TYPE_CHECKING:
    from rich.console import Console

    from devicemanager.core.runoptions import ContainerSettings, RunOptions


def clean(text: str) -> str:
    """Return one line of text with control characters and line ends escaped.

    To print a text of several lines, split it with ``lines_of``.

    Names from sockets and files must not control the terminal or look like another line.
    """
    # Nearly all texts are printable, and this test is faster than the loop.
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, each one escaped.

    Only a newline ends a line. ``str.splitlines`` would also split at other characters, which a
    device ID can contain.
    """
    return [clean(line) for line in text.removesuffix("\n").split("\n")]


def print_yaml(value: object) -> None:
    """Print a value as YAML, in the order of its fields. Control characters are escaped."""
    import yaml  # slow to import

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if not is_printable(text):
        # Rarely needed, and less readable: this escapes every character that is not ASCII.
        text = yaml.safe_dump(value, sort_keys=False)
    print(text, end="")


def print_documents(values: Iterable[object]) -> None:
    """Print values as documents of one YAML stream."""
    for number, each in enumerate(values):
        if number:
            print("---")
        print_yaml(each)


class Listing(NamedTuple):
    """Content of a list to print: table columns and rows, and the names for ``-o name``."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Sequence[str]
    """Names of the items for ``-o name``. A repeated name is printed once."""
    wide: Sequence[tuple[str, Sequence[str]]] = ()
    """Additional columns for ``-o wide``. Each is a pair: the heading, and a cell for each row."""


def print_list(
    form: str, schema: str, value: Mapping[str, object], listing: Callable[[], Listing]
) -> None:
    """Print a list in the format ``form``, one of ``options.LIST_FORMATS``.

    JSON and YAML show ``value``. The other formats show the result of ``listing``. ``schema`` is
    the short name of the JSON schema, such as ``pods``.
    """
    if form == "json":
        print_json(schema, value)
    elif form == "yaml":
        print_yaml({"schema": schema_name(schema), **value})
    elif form == "name":
        # ``listing`` is called only where its rows or names are needed: JSON and YAML need neither.
        for name in dict.fromkeys(listing().names):
            print(clean(name))
    else:
        columns, rows, _, wide = listing()
        more = wide if form == "wide" else ()
        cells = zip(*(each for _, each in more), strict=True) if more else [()] * len(rows)
        print_table(
            [*columns, *(heading for heading, _ in more)],
            [[*row, *extra] for row, extra in zip(rows, cells, strict=True)],
        )


def print_json(schema: str, value: Mapping[str, object]) -> None:
    """Print a value as indented JSON, with an additional field ``schema``.

    If the argument ``schema`` is ``pods``, the field is ``devicemanager.pods/v1``. docs/json.md
    describes the schemas.
    """
    print(json.dumps({"schema": schema_name(schema), **value}, indent=2))


@contextlib.contextmanager
def failures(form: str, schema: str, **facts: object) -> Iterator[None]:
    """Run the with block. If it raises an error and ``form`` is ``json``, print the error as JSON
    on standard output.

    The JSON has the keyword arguments ``facts`` as fields, and the error text as the field
    ``error``. The error is raised again, so that it also appears on standard error.
    """
    try:
        yield
    except Exception as error:
        # Scripts that parse the JSON find the error in place of the result.
        if form == "json":
            print_json(schema, {**facts, "error": " ".join(str(error).split())})
        raise


def schema_name(schema: str) -> str:
    """Return the full name of a JSON schema: ``devicemanager.pods/v1`` for ``pods``."""
    return f"devicemanager.{schema}/v1"


def console(**options: Any) -> Console:
    """Return a rich console for standard output, in color if the terminal supports it.

    For a broken pipe, the console raises BrokenPipeError. By default, rich would exit with status
    1, which means a negative result.
    """
    # Imported here, because rich is slow to import and most commands print no table.
    from rich.console import Console

    class StandardOutput(Console):
        def on_broken_pipe(self) -> None:
            raise  # the error that rich handles when it calls this

    return StandardOutput(**options)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, fitted to the terminal. If the output is not a terminal, print plain columns
    without wrapping."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # People get boxes and colors; scripts get plain columns, which they can split.
    terminal = sys.stdout.isatty()
    table = Table(
        box=SIMPLE_HEAD if terminal else None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not terminal)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    if terminal:
        console(highlight=False).print(table)
        return
    plain = io.StringIO()
    # A huge width, so that nothing is cut or wrapped for scripts.
    Console(file=plain, width=1_000_000, color_system=None, highlight=False).print(table)
    for line in plain.getvalue().splitlines():
        print(line.rstrip())


def ids_text(ids: Iterable[str]) -> str:
    """Return device IDs as the text of one table cell, ``-`` for none."""
    return ",".join(ids) or "-"


def nodes_text(nodes: Iterable[int]) -> str:
    """Return NUMA nodes as the text of one table cell: ``0,1``, or ``-`` for none."""
    return ",".join(str(node) for node in sorted(set(nodes))) or "-"


def settings_lines(settings: ContainerSettings | RunOptions) -> Iterator[str]:
    """Yield the settings of a container as text, one per line: environment variables, mounts,
    devices and others."""
    for name, value in settings.envs.items():
        yield clean(f"env {name}={value}")
    for mount in settings.mounts:
        access = "read-only" if mount.read_only else "read-write"
        yield clean(f"mount {mount.host_path} at {mount.container_path} ({access})")
    for device in (*settings.devices, *getattr(settings, "filesystem_devices", ())):
        yield clean(f"device {device.host_path} at {device.container_path} ({device.permissions})")
    for name, value in settings.annotations.items():
        yield clean(f"annotation {name}={value}")
    for name in settings.cdi_devices:
        yield clean(f"CDI device {name}")
    for interface in settings.network_interfaces:
        yield clean(f"network interface {interface.host_name} as {interface.container_name}")
    for pci in settings.pci_devices:
        yield clean(f"PCI device {pci.vendor_id}:{pci.product_id}")
