"""Stubs and servicers made from service descriptors, with the shape of grpc's generated code."""

from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

__all__ = ["adder", "servicer", "stub"]


def stub(service: ServiceDescriptor, module: str) -> type:
    """Create the client class of a service, with one callable per method."""

    def __init__(self: object, channel: grpc.Channel) -> None:
        for method in service.methods:
            setattr(self, method.name, _callable(method, channel))

    return type(f"{service.name}Stub", (), {"__init__": __init__, "__module__": module})


def servicer(service: ServiceDescriptor, module: str) -> type:
    """Create the base class of servers; methods return UNIMPLEMENTED unless overridden."""
    body: dict[str, object] = {method.name: _unimplemented(method) for method in service.methods}
    return type(f"{service.name}Servicer", (), body | {"__module__": module})


def adder(service: ServiceDescriptor) -> Callable[[object, grpc.Server], None]:
    """Create the function that adds a servicer to a server."""

    def add(implementation: object, server: grpc.Server) -> None:
        handlers = {
            method.name: _handler(method, getattr(implementation, method.name))
            for method in service.methods
        }
        generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))

    add.__name__ = add.__qualname__ = f"add_{service.name}Servicer_to_server"
    return add


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _callable(method: MethodDescriptor, channel: grpc.Channel) -> object:
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    return make(
        _path(method),
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )


# The annotation is a string: the class is generic only in its type stubs.
def _handler(
    method: MethodDescriptor, behaviour: Callable[..., Any]
) -> "grpc.RpcMethodHandler[Any, Any]":
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        behaviour,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )


def _unimplemented(method: MethodDescriptor) -> Callable[..., NoReturn]:
    def answer(self: object, request: object, context: grpc.ServicerContext) -> NoReturn:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    answer.__name__ = answer.__qualname__ = method.name
    return answer
