"""An API server in Python for tests: nodes, pods, resource claims and slices, with faults.

Theory of operation.

In:  HTTP requests on loopback, and calls from tests.
Out: responses and watch events, as those of a real API server.

``FakeApiServer`` (``server``) accepts connections. These modules handle a request, in this order:
1. ``discovery`` answers the paths ``/api`` and ``/apis``. ``handling`` parses path, query and body
   of all other requests. ``kinds`` has the resources and their versions, and ``list_options``
   parses the queries. ``bodies`` decodes JSON, YAML and protobuf (``protobuf``), and checks the
   types of fields (``structure``). Responses are JSON (``encoding``).
2. ``authorization``: permissions of users, and the Node authorizer for impersonated nodes.
3. ``faults``: an injected fault can replace the response by an error.
4. ``conversion`` converts objects from the version of the request to the stored version.
5. ``registry``: rules for create, update and delete: generated names, graceful deletion,
   finalizers, preconditions, subresources. ``patches`` applies patches. ``resources`` has the
   defaults of resource.k8s.io, and ``objects.dra`` its rules for valid objects.
6. ``store``: objects in memory, one version counter, and the changes for watches (``watch``).
7. ``request_log``: requests and status codes, for assertions of tests.

``Controllers`` runs the scheduler and three controllers (node lifecycle, Jobs, claims) on threads
of the same process (modules ``controllers``, ``scheduler``, ``claim_controller``).

Invariants:
* Stored objects are never modified: a change stores a new object with a new version.
* Every change is made with the store's lock held, so a watch gets all changes in version order.
* All data is in memory. All users have the same role. The only admission rules are those for Nodes
  and Pods. Use the server for tests and demos only.

The tests in tests/cluster/peers run on this server and on a real control plane. The requests in
tests/apiserver/real_answers are sent to both.
"""

from __future__ import annotations

from devicemanager.apiserver.authorization import (
    Permission,
    Permissions,
    permissions_of,
)
from devicemanager.apiserver.controllers import Controllers
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.faults import Faults, Request
from devicemanager.apiserver.in_cluster import InCluster, InClusterError
from devicemanager.apiserver.request_log import LoggedRequest, RequestLog
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object

__all__ = [
    "Controllers",
    "FakeApiServer",
    "Faults",
    "InCluster",
    "InClusterError",
    "LoggedRequest",
    "Object",
    "Permission",
    "Permissions",
    "Request",
    "RequestLog",
    "StatusError",
    "permissions_of",
]
