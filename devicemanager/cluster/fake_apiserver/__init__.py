"""A fake API server in Python, for tests of nodes and pods, with fault injection.

Theory of operation.

In:  HTTP requests on loopback, and calls from tests.
Out: responses and watch events, in the form and with the texts of a real API server.

``FakeApiServer`` (``server``) accepts connections; each request goes through these steps:
1. ``handling``: parse path, query and body (``kinds`` knows the resources).
2. ``authorization``: permissions of users, and the Node authorizer for impersonated nodes.
3. ``faults``: an injected error replaces the response.
4. ``registry``: rules for create, update and delete: generated names, graceful deletion,
   finalizers, preconditions, subresources.
5. ``store``: objects in memory, one version counter, and the changes for watches.

``Controllers`` (``controllers``, ``scheduler``) are node lifecycle, scheduler and Job controller.
They run on threads of the same process.

Invariants:
* Stored objects are never modified: a change stores a new object with a new version.
* Every change is made with the store's lock held, so a watch gets all changes in version order.
* All data is in memory. All users have one role. The only admission rules are those for Nodes and
  Pods. Use the server for tests and demos only.

The tests in tests/cluster/peers run on this server and on a real control plane.
"""

from __future__ import annotations

from devicemanager.cluster.fake_apiserver.authorization import (
    Permission,
    Permissions,
    permissions_of,
)
from devicemanager.cluster.fake_apiserver.controllers import Controllers
from devicemanager.cluster.fake_apiserver.errors import StatusError
from devicemanager.cluster.fake_apiserver.faults import Faults, Request
from devicemanager.cluster.fake_apiserver.server import FakeApiServer
from devicemanager.cluster.fake_apiserver.store import Object

__all__ = [
    "Controllers",
    "FakeApiServer",
    "Faults",
    "Object",
    "Permission",
    "Permissions",
    "Request",
    "StatusError",
    "permissions_of",
]
