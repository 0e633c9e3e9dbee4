"""The command in a process of its own: its script, and ``python -m devicemanager``."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command and return its exit status."""
    _let_interrupts_end_the_process()
    from devicemanager.cli import main as command

    return command()


def _let_interrupts_end_the_process() -> None:
    """Nothing is set up yet that would have to be taken down: a traceback of the imports
    would tell nobody anything."""
    # What `signal` is made of; that itself takes longer to load than all before it.
    signal = __import__("_signal")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
