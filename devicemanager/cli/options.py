"""Argument parsers, errors and options that several subcommands use."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    Subparsers: TypeAlias = argparse._SubParsersAction["CommandParser"]

Run = Callable[[argparse.Namespace], int]
"""Function that runs a subcommand and returns its exit status."""


class CommandError(Exception):
    """Error for a mistake that the user can fix. The text is one line."""


def not_installed(error: ModuleNotFoundError, extra: str) -> str:
    """Return the error text for a missing Python module. It names the pip command that installs
    the pip extra ``extra``."""
    return f"{error.name} is not installed: pip install 'kubelet-devicemanager[{extra}]'"


@contextlib.contextmanager
def needs_extra(name: str, extra: str) -> Iterator[None]:
    """Run the ``with`` block, which imports the modules of the command ``name``.

    Raises CommandError if a module is not installed. The error names the pip extra to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"{name}: {not_installed(error, extra)}") from None


@contextlib.contextmanager
def rejected_server(flag: str) -> Iterator[None]:
    """Convert errors of the ``with`` block, which creates a server, to CommandError.

    ``flag`` is ``control`` or ``http``. This is the name of the server's flag, and of the pip extra
    that the server needs.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"--{flag}: {not_installed(error, flag)}") from None
    except ValueError as error:
        # Already imported, because this module raised the error.
        from devicemanager.control.access import NotLoopback

        more = f"; or add --{flag}-allow-remote" if isinstance(error, NotLoopback) else ""
        raise CommandError(f"--{flag}: {error}{more}") from None


class SuggestingParser(argparse.ArgumentParser):
    """Argument parser whose errors suggest what a mistyped word was meant to be."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse has no public hook for its error, which lists all choices.
        if action.choices is not None and value not in action.choices:
            meant = _meant(str(value), map(str, action.choices))
            if meant:
                raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {meant}")
        super()._check_value(action, value)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and reject unknown arguments.

        The base class would leave the unknown arguments of a subcommand to the main parser, which
        prints its own usage instead of the subcommand's.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            words = sys.argv[1:] if args is None else args
            text = f"unrecognized arguments: {' '.join(unknown)}"
            hints = _meant_option(unknown, self._option_string_actions), self.hint(words)
            self.error("; ".join([text, *filter(None, hints)]))
        return found, unknown

    def hint(self, words: Sequence[str]) -> str:
        """Return advice for a command line with unknown arguments, or an empty text. ``words`` are
        the words of the command line."""
        return ""


def _meant_option(unknown: Iterable[str], known: Iterable[str]) -> str:
    options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    return _meant(options[0], known) if options else ""


def _meant(word: str, known: Iterable[str]) -> str:
    import difflib  # rarely needed: most commands have no mistyped word

    found = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {found[0]}?" if found else ""


class CommandParser(SuggestingParser):
    """Argument parser of a subcommand.

    ``complete`` is a function that adds arguments to the parser. It runs only if the user calls
    the subcommand, so it can import modules that would slow down ``devicemanager --help``.
    """

    complete: Callable[[argparse.ArgumentParser], None] | None = None
    takes_command = False
    """True if another command, with its own options, follows after ``--``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create a parser that accepts no abbreviated options: ``--simulate`` never means
        ``--simulate-pools``."""
        super().__init__(*args, **options)
        self.allow_abbrev = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Call the function ``complete``, if it is set, to add arguments to this parser. Then parse
        the command line."""
        # Reset first, because a parser can parse twice but can add an argument only once.
        complete, self.complete = self.complete, None
        if complete is not None:
            complete(self)
        return super().parse_known_args(args, namespace)

    def hint(self, words: Sequence[str]) -> str:
        """Return the advice to put ``--`` before the command that the subcommand runs.

        Return an empty text if the subcommand runs no other command, or if ``words``, the words of
        the command line, contain ``--``.
        """
        is_missing = self.takes_command and "--" not in words
        return "put the command to run after --" if is_missing else ""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises OSError if it cannot be written, except for a broken pipe."""
        # The base class ignores errors, so that a full disk would look like success.
        stream = sys.stdout if file is None else file
        if stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        # A reader such as `head` closes the pipe early, which is not an error.
        with contextlib.suppress(BrokenPipeError):
            stream.write(self.format_help())


def command(
    subparsers: Subparsers,
    name: str,
    run: Run,
    help_: str,
    description: str | None = None,
    complete: Callable[[argparse.ArgumentParser], None] | None = None,
) -> CommandParser:
    """Add a subcommand and return its parser. The default description is the help text."""
    sentence = description or f"{help_[0].upper()}{help_[1:]}."
    parser = subparsers.add_parser(name, help=help_, description=sentence)
    parser.set_defaults(run=run)
    parser.complete = complete
    return parser


LIST_FORMATS = ("table", "wide", "json", "yaml", "name")
"""The output formats of every list."""


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Add the option ``-o``. The first format is the default."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"output format (default: {formats[0]})",
    )


def add_repeated(
    parser: argparse._ActionsContainer, name: str, metavar: str, help_: str, **options: Any
) -> None:
    """Add an option that can be repeated. Its value is a list."""
    parser.add_argument(
        name,
        # A shared list is safe here: the action ``append`` copies it before it adds a value.
        action="append",
        default=[],
        metavar=metavar,
        help=f"{help_}; can be repeated",
        **options,
    )
