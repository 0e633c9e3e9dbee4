"""Read and write ``dra_manager_state``, a file in the kubelet's root directory."""

from __future__ import annotations

import os
from typing import Final

from checkpoint.dra.model import State
from checkpoint.dra.reading import loads
from checkpoint.files import Durability, FileOperations
from checkpoint.freeing import Freeing
from checkpoint.store import FileStore

STATE_NAME: Final = "dra_manager_state"
"""Name of the file (``draManagerStateFileName``, pkg/kubelet/cm/dra/manager.go, v1.32)."""


class StateStore(FileStore):
    """Storage of the DRA manager's state file in one directory. The default durability is that of
    the kubelet (``Durability.KUBELET``)."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        durability: Durability | str = Durability.KUBELET,
        files: FileOperations | None = None,
        freeing: Freeing | None = None,
    ) -> None:
        super().__init__(directory, STATE_NAME, durability=durability, files=files, freeing=freeing)

    def load_state(self) -> State:
        """Return the validated contents of the file. Raises CheckpointError like
        :func:`checkpoint.load`."""
        return loads(self.read(), source=os.fspath(self.path))
