"""Serve one resource as the whole purpose of a program."""

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

    Raises ConfigurationError for a resource name or a directory that cannot work, PluginError
    if ``start`` of the plugin keeps failing, and TypeError for a class instead of an instance.
    A second signal during the stop ends the process at once, except SIGHUP: a closing terminal
    sends several.
    """
    if not isinstance(plugin, Plugin):
        raise TypeError(wrong_type("plugin", plugin))
    check_resource_name(resource)
    # `check_resource_name` has ensured that there is exactly one slash.
    namespace, _, last_name = resource.partition("/")
    lister = StaticLister(namespace, {last_name: plugin})
    # Before gRPC is imported, which takes a while: Ctrl-C would print a traceback of the import.
    with SignalWait() as signals:
        from devicemanager.plugin.manager import Manager

        Manager(lister, directory, settings)._run_until(signals)
