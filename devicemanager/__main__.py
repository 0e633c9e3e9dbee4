"""Entry point of the command ``devicemanager`` and of ``python -m devicemanager``."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command ``devicemanager`` and return its exit status."""
    _exit_on_interrupt()
    from devicemanager.cli import main as command

    return command()


def _exit_on_interrupt() -> None:
    """Let Ctrl-C end the process without a traceback while modules are imported.

    This is safe because the process has nothing to clean up yet.
    """
    # The C part of the module `signal`: `signal` itself takes longer to import than this module.
    signal = __import__("_signal")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
