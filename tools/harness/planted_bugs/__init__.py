"""The planted bugs, a module for each part of the project. Each bug removes a guard.

Names are those that ``Guard.planted`` and ``Target.planted`` use. A bug that needs a module which a
process does not use imports it: this happens only with a planted bug.
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
"""Importing them registers the bugs."""
