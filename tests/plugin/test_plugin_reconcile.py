"""The decision over an observation, as a table; and the notifier."""

import threading

import pytest

from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.reconcile import Action, Observation, decide
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import StreamCounts
from podresources.sockets import FileIdentity

SETTINGS = PluginSettings(
    recheck=2, stream_delay=1, stream_delay_limit=30, stream_wait=60, stream_settled=10
)
OLD, NEW = FileIdentity(1, 1, 1), FileIdentity(1, 1, 2)
GONE = StreamCounts(open=0, opened=1, last_opened=50, last_ended=100)


def observation(now=100.0, kubelet=NEW, served=NEW, **fields):
    return Observation(now=now, kubelet=kubelet, served_kubelet=served, **fields)


@pytest.mark.parametrize(
    ("observed", "step", "timeout"),
    [
        (observation(kubelet=None), Action.IDLE, 2),
        (observation(kubelet=None, served=None), Action.IDLE, 2),
        (observation(served=None), Action.SERVE, 0),
        (observation(served=OLD, registered_at=90), Action.SERVE, 0),
        (observation(own_socket=False, registered_at=90), Action.SERVE, 0),
        (observation(), Action.REGISTER, 0),
        # The kubelet opens the ListAndWatch stream before it responds to Register.
        (observation(streams=StreamCounts(1, 1, 99)), Action.REGISTER, 0),
        (observation(registered_at=90, streams=StreamCounts(1, 1, 99)), Action.WATCH, 2),
        (observation(registered_at=90, streams=StreamCounts(1, 5, 99, 99)), Action.WATCH, 2),
        (observation(now=100.5, registered_at=90, streams=GONE), Action.WATCH, 0.5),
        (observation(now=101, registered_at=90, streams=GONE), Action.SERVE, 0),
        (observation(now=101, registered_at=90, streams=GONE, short_streams=2), Action.WATCH, 2),
        (observation(now=104, registered_at=90, streams=GONE, short_streams=2), Action.SERVE, 0),
        (observation(now=129, registered_at=90, streams=GONE, short_streams=99), Action.WATCH, 1),
        (observation(now=130, registered_at=90, streams=GONE, short_streams=9999), Action.SERVE, 0),
        (observation(now=149, registered_at=90), Action.WATCH, 1),
        (observation(now=150, registered_at=90), Action.SERVE, 0),
    ],
)
def test_decide_returns_the_next_step(observed, step, timeout):
    decision = decide(observed, SETTINGS)
    assert (decision.step, decision.timeout) == (step, timeout)
    assert bool(decision.reason) == (step in (Action.SERVE, Action.IDLE))


def test_wait_for_a_stream_can_be_unlimited():
    settings = PluginSettings(recheck=2, stream_wait=None)
    assert decide(observation(now=1e9, registered_at=1), settings).step is Action.WATCH


def test_notification_before_the_wait_is_not_lost():
    notifier = Notifier()
    seen = notifier.count
    notifier.notify()
    notifier.wait(seen, 60)
    waiter = threading.Thread(target=notifier.wait, args=(notifier.count, 60))
    waiter.start()
    notifier.notify()
    waiter.join(10)
    assert not waiter.is_alive()
