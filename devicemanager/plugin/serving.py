"""Main function of a program that serves one resource."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from devicemanager.plugin.author import Plugin, StaticLister, wrong_type
from devicemanager.plugin.common.signals import SignalWait
from devicemanager.plugin.names import check_resource_name

if TYPE_CHECKING:
    from devicemanager.plugin.settings import PluginSettings

__all__ = ["serve"]


def serve(
    plugin: Plugin,
    resource: str,
    directory: str | os.PathLike[str] | None = None,
    settings: PluginSettings | None = None,
) -> None:
    """Serve one resource until SIGTERM, SIGINT, SIGQUIT or SIGHUP.

    Raises ConfigurationError for an invalid resource name or plugin directory, and PluginError if
    the plugin's ``start`` keeps failing. Raises TypeError for a class instead of an instance. A
    second signal during the stop ends the process immediately. Only SIGHUP has no effect then,
    because a closing terminal sends SIGHUP several times.
    """
    if not isinstance(plugin, Plugin):
        raise TypeError(wrong_type("plugin", plugin))
    check_resource_name(resource)
    # `check_resource_name` has ensured that there is exactly one slash.
    namespace, _, last_name = resource.partition("/")
    lister = StaticLister(namespace, {last_name: plugin})
    # Handle signals before gRPC is imported: the import is slow, and Ctrl-C during it would print
    # a traceback.
    with SignalWait() as signals:
        from devicemanager.plugin.manager import Manager

        Manager(lister, directory, settings)._run_until(signals)
