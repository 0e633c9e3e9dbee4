"""A simulated DRA driver: virtual devices, CDI files, health, several instances, and faults.

In:  :class:`DriverFaults`, which you can change at any time; ResourceClaims from the mock kubelet
     or from a function of the caller.
Out: a registered driver, its call log (:class:`DriverCall`), and CDI files.

Start with ``driver``. The package does not depend on the mock kubelet: it accepts any object with
the attributes ``root`` and ``resource_claim``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.driver.simulated.driver import DriverCall, HasClaims, SimulatedDriver
    from devicemanager.driver.simulated.faults import DriverFaults

__all__ = ["DriverCall", "DriverFaults", "HasClaims", "SimulatedDriver"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DriverCall": "driver",
        "DriverFaults": "faults",
        "HasClaims": "driver",
        "SimulatedDriver": "driver",
    },
)
