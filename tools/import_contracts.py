"""The import contract of a room: what of this project it may import, and nothing else.

A contract that forbids would have to name every module there is and will be; this one
names the few that are allowed, so a new module is outside until somebody lets it in.
"""

from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["OnlyContract"]


class OnlyContract(Contract):
    """``room`` imports only itself and ``may_import`` of the packages checked."""

    room = fields.StringField()
    may_import = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Hold the contract against the imports of all modules of the room."""
        room = str(self.room)
        if room not in graph.modules:
            raise ValueError(f"import contract: there is no module {room}")
        # On an instance import-linter has put the value in the field's place.
        allowed = (room, *cast(list[str], self.may_import))
        broken = [
            (importer, imported)
            for importer in sorted({room} | graph.find_descendants(room))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not graph.is_module_squashed(imported) and not _within(imported, allowed)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that is not allowed."""
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"- {importer} imports {imported}")


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
