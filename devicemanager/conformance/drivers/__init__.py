"""Conformance checks of DRA drivers.

Theory of operation. Checks of drivers use the code of ``devicemanager.conformance``: runner, hooks,
waivers, reports. Drivers have their own checks, stage and run, which the module ``suite`` lists.

In:  a ``DriverUnderTest`` (command, environment, hooks, options), and the arguments of
     ``conformance.run``.
Out: a ``Report``, as for plugins. Its field ``resources`` has the name of the driver.

* ``stage`` has a mock kubelet, an API server with a Node, and the driver's processes. Drivers find
  kubelet and API server by environment variables, by placeholders, or in a private mount namespace.
* ``checks.toml`` has one row per check. The package ``checks`` has a function for each row, and one
  module per family of checks.
* The module ``run`` has what the functions use: claims on published devices (``claims``), calls of
  the driver (``client``), waits, CDI directories (``cdi``).
* ``recognition`` decides whether a program is a plugin or a driver, by what it registers.

Invariants:
* The checks demand only what the kubelet or the operator of a node needs. For example, a driver may
  report an error for the whole call or only in the response's entry for a claim. A claim may have
  no CDI device.
* A check uses devices that the driver has published, in an allocation that a scheduler could make.

Start reading with ``checks/claims.py``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.conformance.drivers.checks import DRIVER_FAMILIES, driver_checks
    from devicemanager.conformance.drivers.driver_under_test import PLACEHOLDERS, DriverUnderTest
    from devicemanager.conformance.drivers.limits import SHARED_LIMITS, DriverLimits
    from devicemanager.conformance.drivers.recognition import is_driver
    from devicemanager.conformance.drivers.suite import DRIVERS

__all__ = [
    "DRIVERS",
    "DRIVER_FAMILIES",
    "PLACEHOLDERS",
    "SHARED_LIMITS",
    "DriverLimits",
    "DriverUnderTest",
    "driver_checks",
    "is_driver",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DRIVERS": "suite",
        "DRIVER_FAMILIES": "checks",
        "DriverLimits": "limits",
        "DriverUnderTest": "driver_under_test",
        "PLACEHOLDERS": "driver_under_test",
        "SHARED_LIMITS": "limits",
        "driver_checks": "checks",
        "is_driver": "recognition",
    },
)
