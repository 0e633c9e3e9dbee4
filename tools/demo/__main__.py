"""``make demo``: show a kubelet, plugins, pods, a crash, NUMA nodes and claims.

The demo starts a mock kubelet and plugins in separate processes, admits the example pods, kills and
restarts the kubelet, aligns devices to NUMA nodes, and shares hardware with structured claims.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from devicemanager.cli.options import CommandError
from tools.demo.story import Demo

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--no-go", action="store_true", help="do not build the Go plugin")
    args = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-demo-"))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.ExitStack() as stack:
            demo = Demo(directory, stack)
            demo.play(go=not args.no_go)
    except CommandError as error:
        print(f"demo: error: {error}; the logs are in {directory}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(directory)
        return _INTERRUPTED
    except BaseException:
        shutil.rmtree(directory)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    shutil.rmtree(directory)
    print(f"\nAll {demo.checked} checks passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
