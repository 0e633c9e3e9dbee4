"""Injection points, and the effects that faults have there.

An injection point is a place in the kubelet's code where a fault can fire. An effect is what
the fault then does. Each effect belongs to one injection point, and the module that contains
the point implements the effect: ``implements`` checks at import that no effect is missing. Each
kind of fault (``kinds``) names its effect, and a fault runs only the code of this effect.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, StrEnum
from typing import NamedTuple

__all__ = ["NO_CONTEXT", "Effect", "FaultContext", "InjectionPoint", "implements"]


class InjectionPoint(StrEnum):
    """A place in the kubelet's code where a fault can fire.

    The docstring of each member names the module in ``devicemanager.kubelet`` that contains the
    place.
    """

    REGISTER = "register"
    """A Register call was received and is not checked yet. Module: ``registration.server``."""
    REGISTERED = "registered"
    """A plugin was registered. Its ListAndWatch stream is not open yet, and the response to
    Register was not sent yet. Only faults that act on the kubelet as a whole, such as a restart,
    fire here. Module: ``registration.registrar``."""
    NOTIFICATION = "notification"
    """The plugin watcher has found a plugin and called GetInfo. The registration and the call of
    NotifyRegistrationStatus follow. Module: ``registration.watcher``."""
    LIST = "list"
    """A ListAndWatch response that differs from the previous one was received and is not
    applied yet. Module: ``registration.fault_injection``."""
    CALL = "call"
    """A call to a plugin is about to be made, or the plugin has responded to it. Module:
    ``registration.fault_injection``."""
    CHECKPOINT = "checkpoint"
    """The checkpoint or ``dra_manager_state`` is about to be written. Module:
    ``checkpoint_faults``."""
    START = "start"
    """The kubelet starts and has not read its checkpoint yet. Module: ``checkpoint_faults``."""
    POD_RESOURCES = "pod-resources"
    """A PodResources call was received. Module: ``pod_resources``."""
    PODS_API = "pods-api"
    """A call to the Pods API was received. Module: ``pods_api``."""


class Effect(Enum):
    """What a fault does when it fires, such as failing a call to a plugin.

    Each effect belongs to one injection point: the place in the kubelet's code where the effect
    happens. Only the effects of actions have no injection point. An *action* is a fault that acts
    on the kubelet as a whole, such as a restart, or on the streams or sockets of plugins.
    ``Fault.at`` says when an action is executed. ``kubelet.process_faults`` implements the effects
    of actions.
    """

    # The texts only keep the members distinct: an enum merges members with equal values.
    REJECT_REGISTER = "reject Register", InjectionPoint.REGISTER
    DELAY_REGISTER = "delay the response to Register", InjectionPoint.REGISTER
    CUT_REGISTER = "cut the connections to kubelet.sock", InjectionPoint.REGISTER
    REJECT_NOTIFICATION = "notify of a failed registration", InjectionPoint.NOTIFICATION
    FAIL_NOTIFICATION = "fail the notification", InjectionPoint.NOTIFICATION
    STOP_READING = "stop reading lists", InjectionPoint.LIST
    FAIL_CALL = "fail a call", InjectionPoint.CALL
    DELAY_CALL = "delay a call", InjectionPoint.CALL
    CUT_CALL = "cut the connection to the plugin", InjectionPoint.CALL
    FAIL_CHECKPOINT = "fail a write", InjectionPoint.CHECKPOINT
    DELAY_CHECKPOINT = "delay a write", InjectionPoint.CHECKPOINT
    LOSE_CHECKPOINT = "remove the checkpoint", InjectionPoint.START
    TRUNCATE_CHECKPOINT = "truncate the checkpoint", InjectionPoint.START
    LOSE_DRA_STATE = "remove dra_manager_state", InjectionPoint.START
    TRUNCATE_DRA_STATE = "truncate dra_manager_state", InjectionPoint.START
    FAIL_POD_RESOURCES = "fail a PodResources call", InjectionPoint.POD_RESOURCES
    DELAY_POD_RESOURCES = "delay a PodResources call", InjectionPoint.POD_RESOURCES
    EMPTY_POD_RESOURCES = "respond with nothing", InjectionPoint.POD_RESOURCES
    LIMIT_POD_RESOURCES = "respond with the rate limit's error", InjectionPoint.POD_RESOURCES
    STALE_POD_RESOURCES = "respond with an earlier state", InjectionPoint.POD_RESOURCES
    FAIL_PODS_API = "fail a call to the Pods API", InjectionPoint.PODS_API
    DELAY_PODS_API = "delay a call to the Pods API", InjectionPoint.PODS_API
    END_POD_WATCHES = "end watches of the Pods API", None
    END_LIST_STREAM = "end ListAndWatch streams", None
    DELETE_PLUGIN_SOCKET = "delete plugin sockets", None
    RECREATE_KUBELET_SOCKET = "recreate kubelet.sock", None
    RESTART = "restart", None
    RESTART_TWICE = "restart twice", None
    STOP_AND_START = "stop, and start later", None

    @property
    def point(self) -> InjectionPoint | None:
        """The injection point where this effect happens; None for an action."""
        point: InjectionPoint | None = self.value[1]
        return point


def implements(point: InjectionPoint | None, effects: Collection[Effect]) -> None:
    """Check that a module implements exactly the effects of an injection point.

    The module calls this at import with the effects that it implements. A module that looks up
    the code of an effect in a table passes the keys of the table. Raises TypeError if an effect is
    missing or belongs to another injection point.
    """
    # A test checks that each injection point has exactly one such declaration.
    wanted = {effect for effect in Effect if effect.point is point}
    if missing := wanted - set(effects):
        names = ", ".join(sorted(map(str, missing)))
        raise TypeError(f"no code for {names} at injection point {point}")
    if others := set(effects) - wanted:
        names = ", ".join(sorted(map(str, others)))
        raise TypeError(f"{names} cannot fire at injection point {point}")


class FaultContext(NamedTuple):
    """The plugin and the call for which the kubelet has reached an injection point."""

    resource: str | None = None
    plugin: str | None = None
    """File name of the plugin's socket."""
    rpc: str | None = None
    """Name of the RPC that the kubelet makes to a plugin, or that a client makes to the kubelet."""
    phase: str = "before"
    """The text ``after`` if a plugin has responded to the call, otherwise the text ``before``."""

    def __str__(self) -> str:
        who = " of ".join(filter(None, (self.plugin, self.resource)))
        return " ".join(filter(None, (self.rpc, who)))


NO_CONTEXT = FaultContext()
"""Context of an injection point without plugin and call, such as the kubelet's start."""
