"""``devicemanager completion``: print a completion script for a shell."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from devicemanager.cli.options import CommandError, CommandParser, command, not_installed

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_EPILOG = """\
to enable it in every shell (create the directory first):
  bash:  %(prog)s bash > ~/.local/share/bash-completion/completions/devicemanager
  zsh:   %(prog)s zsh > ~/.zfunc/_devicemanager     (with ~/.zfunc in $fpath)
  fish:  %(prog)s fish > ~/.config/fish/completions/devicemanager.fish
"""
_FILES = ("FILE", "PATH", "FILE.yaml")
_DIRECTORIES = ("DIR",)


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager completion``."""
    parser = command(
        subparsers,
        "completion",
        _run,
        "print a completion script for bash, zsh or fish",
    )
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="shell to print the script for"
    )


def _run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise CommandError(f"completion: {not_installed(error, 'completion')}") from None
    from devicemanager.cli import whole_parser

    # shtab needs the complete parser, so all subcommands are loaded here.
    parser = whole_parser()
    _prepare(parser, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, args.shell))
    return 0


def _prepare(parser: argparse.ArgumentParser, file: Any, directory: Any) -> None:
    """Add the options of all subcommands, and mark the arguments that are files or directories for
    shtab."""
    if isinstance(parser, CommandParser) and parser.complete is not None:
        with contextlib.suppress(CommandError):  # the extra of this subcommand is not installed
            parser.complete(parser)
        parser.complete = None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _prepare(each, file, directory)
        # argparse has no type for file names, so they are recognized by their metavar.
        elif action.metavar in _FILES:
            action.complete = file  # type: ignore[attr-defined]  # shtab reads this attribute
        elif action.metavar in _DIRECTORIES:
            action.complete = directory  # type: ignore[attr-defined]  # shtab reads this attribute
