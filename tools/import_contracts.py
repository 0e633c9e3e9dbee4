"""Import contracts: what each room may import, and that every module is in a room.

A contract that forbids would have to name every module there is and will be; ``only``
names the few that are allowed, so a new import is an error until somebody lets it in.
"""

import tomllib
from pathlib import Path
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["CoveredContract", "OnlyContract"]

_CONFIGURATION = Path(__file__).resolve().parents[1] / "pyproject.toml"


class OnlyContract(Contract):
    """``room`` imports only itself and ``may_import`` of the packages checked.

    With ``alone`` the room is that one module without those below it.
    """

    room = fields.StringField()
    may_import = fields.ListField(subfield=fields.StringField())
    alone = fields.BooleanField(required=False, default=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Hold the contract against the imports of all modules of the room."""
        room = str(self.room)
        if room not in graph.modules:
            raise ValueError(f"import contract: there is no module {room}")
        below = set() if self.alone else graph.find_descendants(room)
        # On an instance import-linter has put the value in the field's place.
        allowed = cast(list[str], self.may_import) + ([] if self.alone else [room])
        broken = [
            (importer, imported)
            for importer in sorted({room} | below)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not graph.is_module_squashed(imported) and not _within(imported, allowed)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that is not allowed."""
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"- {importer} imports {imported}")


class CoveredContract(Contract):
    """Every module of the packages checked is in the room of an ``only`` contract."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Hold the rooms of the configuration against all modules."""
        rooms, alone = _rooms()
        outside = [
            module
            for module in sorted(graph.modules)
            if not graph.is_module_squashed(module)
            and module not in alone
            and not _within(module, rooms)
        ]
        return ContractCheck(kept=not outside, metadata={"outside": outside})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each module that is in no room."""
        for module in check.metadata["outside"]:
            output.print_error(f"- {module} is in no room: name it in a contract of type only")


def _rooms() -> tuple[list[str], set[str]]:
    """The rooms, and the single modules that are rooms."""
    configuration = tomllib.loads(_CONFIGURATION.read_text())
    contracts = configuration["tool"]["importlinter"]["contracts"]
    only = [contract for contract in contracts if contract["type"] == "only"]
    rooms = [contract["room"] for contract in only if not contract.get("alone")]
    return rooms, {contract["room"] for contract in only if contract.get("alone")}


def _within(module: str, packages: list[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
