"""One thing after another, on a thread that may not be there. What is late is in the tests of
static pods."""

import threading

from devicemanager.kubelet.pods.static_pods import FileQueue

PATIENCE = 20.0


def test_in_order_and_waited_for():
    acts, done = FileQueue(), []
    for number in range(5):
        acts.add(lambda number=number: done.append(number), PATIENCE)
        assert done == list(range(number + 1))
    assert not acts.is_late


def test_without_a_thread_the_one_who_asks_does_it(monkeypatch):
    """It is not lost, and what comes later is done on a thread again."""
    acts, done = FileQueue(), []

    def none(self):
        raise RuntimeError("can't start new thread")

    def note():
        done.append(threading.current_thread())

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        acts.add(note, PATIENCE)
    acts.add(note, PATIENCE)
    here = threading.current_thread()
    assert [thread is here for thread in done] == [True, False]
    assert not acts.is_late
