"""Serving one resource, in a program of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from devicemanager.plugin.author import Plugin, StaticLister, wrong_type
from devicemanager.plugin.names import check_resource_name
from devicemanager.plugin.signals import SignalWait

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

    Raises ConfigurationError for a resource name or a directory that cannot work,
    PluginError if the plugin's ``start`` fails for good, and TypeError for the class in
    place of a plugin. A second signal while it stops ends the process at once, except for
    SIGHUP, of which a closing terminal sends several.
    """
    if not isinstance(plugin, Plugin):
        raise TypeError(wrong_type("plugin", plugin))
    check_resource_name(resource)
    namespace, _, last_name = resource.partition("/")
    lister = StaticLister(namespace, {last_name: plugin})
    # Before gRPC is loaded, which takes a while: an interrupt would show a traceback of it.
    with SignalWait() as signals:
        from devicemanager.plugin.manager import Manager

        Manager(lister, directory, settings).run_until(signals)
