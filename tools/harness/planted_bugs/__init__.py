"""The planted bugs, with a module for each part of the project. Each bug removes a guard.

``Guard.planted`` and ``Target.planted`` refer to the names of bugs. The function of a bug imports
the modules that it changes, so that a process without the bug does not load them.
"""

from __future__ import annotations

from tools.harness.planted_bugs import (
    claims,
    clusters,
    drivers,
    files,
    plugins,
    servers,
    starts,
    texts,
)

MODULES = claims, clusters, drivers, files, plugins, servers, starts, texts
"""Modules that register the bugs when they are imported."""
