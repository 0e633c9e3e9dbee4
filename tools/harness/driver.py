"""Run a well-behaved DRA driver in a helper process. Arguments: ``ROOT``.

The driver responds to each claim with a free device. It has more devices than a tool ever uses at a
time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devicemanager.driver.simulated import SimulatedDriver
from tools.harness.process import HelperProcess, exit_now, serve

DRIVER: Final = "good.example.com"
_DEVICES: Final = 1000


def driver_process(root: Path) -> HelperProcess:
    """Start the driver in a helper process, and return when the kubelet in ``root`` has registered
    it."""
    return HelperProcess("tools.harness.driver", root)


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input is closed."""
    (root,) = arguments
    driver = SimulatedDriver(DRIVER, _DEVICES, root=root).start()
    assert driver.wait_registered(60), "the kubelet did not register the driver"
    serve({"stop": driver.stop})
    exit_now()


if __name__ == "__main__":
    main(sys.argv[1:])
