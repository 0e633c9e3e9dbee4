"""Placeholders such as ``{root}`` in the commands of programs under test, and errors for typos in
them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from devicemanager.conformance.outcomes import CheckError

__all__ = ["OF_CLIENTS", "OF_DRIVERS", "OF_HOOKS", "OF_PLUGINS", "check_placeholders"]

OF_PLUGINS: Final = ("plugin_dir", "kubelet_socket", "root")
OF_DRIVERS: Final = {
    "kubeconfig": "file for the API server",
    "node_name": "name of the Node",
    "registrar_dir": "the kubelet's directory plugins_registry",
    "plugins_dir": "the kubelet's directory plugins",
    "cdi_dir": "directory of CDI files",
    "pod_uid": "UID of the driver's pod",
    "nri_socket": "socket of the NRI runtime, with the option --nri",
}
"""Placeholders of drivers with their meanings. A driver also has the placeholders of plugins."""
OF_CLIENTS: Final = ("socket", "root", "port")
OF_HOOKS: Final = ("id", "pid", "plugin_dir", "root")

# Not variables of a shell, and not templates of Go.
_NAME = re.compile(r"(?<![${])\{(\w+)\}(?!\})")
_SIMILARITY = 0.7


def check_placeholders(texts: Iterable[str], names: Iterable[str], where: str) -> None:
    """Raise CheckError if ``texts`` contain a placeholder that is probably a typo.

    Other words in braces raise no error, because they can have a meaning for the program.
    ``names`` are the known placeholders. ``where`` is the origin of ``texts`` in the error, such as
    "the command".
    """
    known = sorted(names)
    for text in texts:
        for name in _NAME.findall(text):
            if name in known:
                continue
            # In lower case, so that a wrong capital letter is found as a typo.
            for meant in get_close_matches(name.lower(), known, 1, _SIMILARITY):
                every = ", ".join(f"{{{each}}}" for each in known)
                raise CheckError(
                    f"unknown placeholder {{{name}}} in {where}: did you mean {{{meant}}}? "
                    f"Use one of {every}"
                )
