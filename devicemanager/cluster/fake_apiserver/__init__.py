"""An API server in Python: enough of one for nodes and pods, and faults by switch.

It keeps everything in memory, speaks plain HTTP on loopback and knows neither RBAC beyond one
role nor admission beyond what nodes meet. Tests and ``devicemanager join --demo`` use it; it
is no place for anything that matters.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.cluster.fake_apiserver.controllers import Controllers
    from devicemanager.cluster.fake_apiserver.faults import Faults
    from devicemanager.cluster.fake_apiserver.server import FakeApiServer

__all__ = ["Controllers", "FakeApiServer", "Faults"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {"Controllers": "controllers", "Faults": "faults", "FakeApiServer": "server"},
)
