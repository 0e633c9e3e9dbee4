"""Main function of a program that serves one driver."""

from __future__ import annotations

import logging
import os

from devicemanager.driver.author import Driver
from devicemanager.driver.paths import check_driver_name
from devicemanager.plugin.author import wrong_type
from devicemanager.plugin.common.signals import SignalWait

__all__ = ["serve"]

_log = logging.getLogger(__name__)


def serve(
    driver: Driver,
    name: str,
    *,
    node_name: str = "",
    rolling_update: str = "",
    data_dir: str | os.PathLike[str] = "",
    registrar_dir: str | os.PathLike[str] = "",
    cdi_dir: str | os.PathLike[str] = "",
    metadata: bool = False,
    kubeconfig: str | os.PathLike[str] | None = None,
) -> None:
    """Serve a driver until SIGTERM, SIGINT, SIGQUIT or SIGHUP.

    :class:`DriverSettings` describes the arguments and their defaults.

    Raises ConfigurationError for an invalid name, ClusterError if no API server is configured,
    and TypeError if ``driver`` is a class instead of an instance. A second signal during the stop
    ends the process immediately. A second SIGHUP has no effect, because a closing terminal sends
    several.
    """
    if not isinstance(driver, Driver):
        raise TypeError(wrong_type("driver", driver))
    check_driver_name(name)
    # Handle signals before gRPC is imported: the import is slow, and Ctrl-C during it would print
    # a traceback.
    with SignalWait() as signals:
        from devicemanager.driver.server import DriverServer
        from devicemanager.driver.settings import DriverSettings

        settings = DriverSettings(
            node_name=node_name,
            rolling_update=rolling_update,
            data_dir=data_dir,
            registrar_dir=registrar_dir,
            cdi_dir=cdi_dir,
            metadata=metadata,
            kubeconfig=kubeconfig,
        )
        server = DriverServer(driver, name, settings)
        # After a signal during the import, the sockets are not created at all.
        if signals.is_pending():
            return
        with server:
            number = signals.wait()
            signals.let_next_signal_kill()
            if number is not None:
                _log.info("stopping: %s", number.name)
