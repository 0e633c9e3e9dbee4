"""``python -m tools.api_page``: write docs/api.md from ``__all__`` of the public packages."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NewType

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
PUBLIC = {
    "devicemanager": "the kubelet's side",
    "devicemanager.kubelet": "types of a kubelet's arguments and results",
    "devicemanager.control": "the control API and its client (the extra `control`)",
    "devicemanager.observe.web": "a kubelet over HTTP (the extra `http`)",
    "devicemanager.kubelet.inmemory": "a node without sockets",
    "devicemanager.cluster": "nodes in a real cluster",
    "devicemanager.apiserver": "an API server for tests",
    "devicemanager.testing": "for tests, in addition to the fixtures of the pytest plugin",
    "devicemanager.events.calls": "calls between the kubelet and plugins",
    "devicemanager.faults": "kubelet-side fault injection",
    "devicemanager.plugin": "write a plugin",
    "devicemanager.plugin.typed": "typed devices",
    "devicemanager.plugin.simulated": "a plugin with virtual devices",
    "devicemanager.driver": "write a DRA driver",
    "devicemanager.driver.simulated": "a DRA driver with virtual devices",
    "devicemanager.driver.recording": "record and replay calls of DRA drivers",
    "devicemanager.conformance": "certify a plugin (the extra `conformance`)",
    "devicemanager.conformance.drivers": "certify a DRA driver (the extra `conformance`)",
    "devicemanager.conformance.clients": "certify a PodResources client (the extra `conformance`)",
    "devicemanager.snapshot": "snapshots of nodes (reading needs the extra `snapshot`)",
    "devicemanager.rehearsal": "what a reboot or an upgrade would do to the pods of a snapshot",
    "devicemanager.fleet": "all nodes of a cluster (reading snapshots needs the extra `snapshot`)",
    "devicemanager.plugin.recording": "record and replay calls between a kubelet and its plugins",
    "devicemanager.testing.mock_podresources": "a mock PodResources server",
    "devicemanager.claims": "structured claims",
    "devicemanager.claims.dra": "allocation of claims of resource.k8s.io",
    "devicemanager.kubelet.nri": "a minimal NRI runtime for DRA drivers that are NRI plugins",
    "devicemanager.kubelet.runtime.oci": "settings for an OCI runtime",
    "devicemanager.kubelet.runtime.cdi": "devices by name, from specification files",
    "devicemanager.core.types": "types in the signatures of the packages above",
    "podresources": "client and server of the PodResources API",
    "podresources.pods_api": "client and server of the Pods API",
    "checkpoint": "the file `kubelet_internal_checkpoint`",
    "checkpoint.dra": "the file `dra_manager_state`",
}
"""Purpose of each public package."""

_HEAD = """\
# Public API

The names on this page are stable; all other names can change at any time.

The package `protos` has a module for the messages of each API. For example, use
`from protos import deviceplugin_v1beta1 as dp`. A second module, with the suffix `_grpc`, has
the stubs, servicers and method paths of this API.

`python -m tools.api_page` writes this page from `__all__` of each package.
"""
_KINDS = ("Classes", "Errors", "Functions", "Values")


def page() -> str:
    """Return the text of docs/api.md."""
    parts = [_HEAD]
    for name, purpose in PUBLIC.items():
        parts.append(f"\n## `{name}`: {purpose}")
        parts.extend(_table(importlib.import_module(name)))
    return "\n".join(parts) + "\n"


def _table(package: ModuleType) -> Iterator[str]:
    for kind in _KINDS:
        members = {name: getattr(package, name) for name in package.__all__}
        of_kind = {name: value for name, value in members.items() if _kind(value) == kind}
        if of_kind:
            yield f"\n| {kind} | |\n|---|---|"
            for name, value in of_kind.items():
                text = text_of_value(package, name) if kind == "Values" else inspect.getdoc(value)
                yield f"| `{name}` | {_first_sentence(text or '')} |"


def _kind(value: object) -> str:
    if inspect.isclass(value):
        return "Errors" if issubclass(value, BaseException) else "Classes"
    return "Functions" if inspect.isroutine(value) else "Values"


def text_of_value(package: ModuleType, name: str) -> str:
    """Return the docstring below the assignment of the constant or type alias ``name`` of a
    package. The package can re-export a value from another module, so all modules are searched.
    """
    value = getattr(package, name)
    home = sys.modules[value.__module__] if isinstance(value, NewType) else _home(package, name)
    file = Path(home.__file__ or "")
    is_collection = file.name in ("__init__.py", "types.py")
    for path in sorted(file.parent.rglob("*.py")) if is_collection else [file]:
        source = path.read_text()
        # Parsing takes long, and almost no file assigns the name.
        if not re.search(rf"^{name}\b", source, re.MULTILINE):
            continue
        body = ast.parse(source).body
        for statement, following in pairwise(body):
            match statement, following:
                case (
                    ast.Assign(targets=[ast.Name(id=target)])
                    | ast.AnnAssign(target=ast.Name(id=target)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if target == name:
                    return text
    return f"``{getattr(package, name)}``"


def _home(package: ModuleType, name: str) -> ModuleType:
    """Return the module from which a package imports a name; the package itself if it defines the
    name."""
    for statement in ast.walk(ast.parse(Path(package.__file__ or "").read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            module, names = statement.module, [each.name for each in statement.names]
            if name in names and not module.startswith(f"{package.__name__}."):
                return sys.modules.get(module, package)
    return package


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return re.sub(r":\w+:`", "`", sentence.replace("``", "`")).replace("|", "\\|")


def main() -> int:
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
