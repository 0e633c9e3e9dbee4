"""The decision over what is seen, as a table; and the bell."""

import threading

import pytest

from devicemanager.plugin.life import Sight, Step, decide
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.sockets import FileIdentity
from devicemanager.plugin.streams import StreamCounts
from devicemanager.plugin.wake import Wake

SETTINGS = PluginSettings(
    recheck=2, stream_delay=1, stream_delay_limit=30, stream_wait=60, stream_settled=10
)
OLD, NEW = FileIdentity(1, 1, 1), FileIdentity(1, 1, 2)
GONE = StreamCounts(open=0, opened=1, last_opened=50, last_ended=100)


def sight(now=100.0, kubelet=NEW, served=NEW, **seen):
    return Sight(now=now, kubelet=kubelet, served_kubelet=served, **seen)


@pytest.mark.parametrize(
    ("seen", "step", "timeout"),
    [
        (sight(kubelet=None), Step.IDLE, 2),
        (sight(kubelet=None, served=None), Step.IDLE, 2),
        (sight(served=None), Step.SERVE, 0),
        (sight(served=OLD, registered_at=90), Step.SERVE, 0),
        (sight(own_socket=False, registered_at=90), Step.SERVE, 0),
        (sight(), Step.REGISTER, 0),
        # The kubelet opens the list before it answers Register.
        (sight(streams=StreamCounts(1, 1, 99)), Step.REGISTER, 0),
        (sight(registered_at=90, streams=StreamCounts(1, 1, 99)), Step.WATCH, 2),
        (sight(registered_at=90, streams=StreamCounts(1, 5, 99, 99)), Step.WATCH, 2),
        (sight(now=100.5, registered_at=90, streams=GONE), Step.WATCH, 0.5),
        (sight(now=101, registered_at=90, streams=GONE), Step.SERVE, 0),
        (sight(now=101, registered_at=90, streams=GONE, short_lives=2), Step.WATCH, 2),
        (sight(now=104, registered_at=90, streams=GONE, short_lives=2), Step.SERVE, 0),
        (sight(now=129, registered_at=90, streams=GONE, short_lives=99), Step.WATCH, 1),
        (sight(now=130, registered_at=90, streams=GONE, short_lives=9999), Step.SERVE, 0),
        (sight(now=149, registered_at=90), Step.WATCH, 1),
        (sight(now=150, registered_at=90), Step.SERVE, 0),
    ],
)
def test_what_is_seen_says_what_to_do(seen, step, timeout):
    decision = decide(seen, SETTINGS)
    assert (decision.step, decision.timeout) == (step, timeout)
    assert bool(decision.reason) == (step in (Step.SERVE, Step.IDLE))


def test_a_stream_that_never_comes_may_be_waited_for_for_ever():
    patient = PluginSettings(recheck=2, stream_wait=None)
    assert decide(sight(now=1e9, registered_at=1), patient).step is Step.WATCH


def test_a_ring_before_the_wait_is_not_lost():
    wake = Wake()
    seen = wake.count
    wake.ring()
    wake.wait(seen, 60)
    waiter = threading.Thread(target=wake.wait, args=(wake.count, 60))
    waiter.start()
    wake.ring()
    waiter.join(10)
    assert not waiter.is_alive()
