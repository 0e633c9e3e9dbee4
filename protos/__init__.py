"""The wire contract with plugins and with PodResources clients.

Import a message module (``from protos import deviceplugin_v1beta1 as dp``) for the
messages of one API, and the module of the same name with ``_grpc`` at its end for stubs,
servicers and method paths. The messages live in a descriptor pool of their own, so they
stand beside a user's ``api_pb2`` that defines the same names.

What never appears here: logic, defaults, or an import of another package of this
project. Message modules never import grpc.
"""

from pkgutil import extend_path

# A directory ``protos`` without ``__init__.py`` on somebody's path stays importable.
__path__ = extend_path(__path__, __name__)
