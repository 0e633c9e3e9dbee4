"""The queue of one manifest file. Tests of static pods cover late actions."""

import threading

from devicemanager.kubelet.pods.static_pods import FileQueue

PATIENCE = 20.0


def test_actions_run_in_order_and_are_waited_for():
    acts, done = FileQueue(), []
    for number in range(5):
        acts.add(lambda number=number: done.append(number), PATIENCE)
        assert done == list(range(number + 1))
    assert not acts.is_late


def test_caller_runs_the_action_if_no_thread_can_be_started(monkeypatch):
    """No action is lost, and later ones run on a thread again."""
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
