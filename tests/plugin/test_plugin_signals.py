"""Waiting for a stop signal."""

import os
import signal
import threading

import pytest

from devicemanager.plugin.signals import STOP_SIGNALS, SignalWait


def handlers():
    return [signal.getsignal(number) for number in STOP_SIGNALS]


def test_a_signal_before_the_wait_is_not_missed():
    before = handlers()
    with SignalWait() as signals:
        # Nothing sleeps yet: what only interrupts a sleep would be lost here.
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait() is signal.SIGTERM
        signals.restore()
        assert handlers() == before
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1


def test_the_next_interrupt_may_end_the_process():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    mine = signal.signal(signal.SIGQUIT, lambda *_: None)
    expected = handlers()
    try:
        with SignalWait() as signals:
            signals.let_next_end()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGQUIT) is expected[2]
        assert handlers() == expected
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGQUIT, mine)


def test_other_signals_do_not_end_the_wait():
    mine = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: mine.set())
    try:
        with SignalWait() as signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGQUIT)
            assert signals.wait() is signal.SIGQUIT
        assert mine.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_may_end_the_wait_and_afterwards_nothing_happens():
    with SignalWait() as signals:
        threading.Thread(target=signals.give_up).start()
        assert signals.wait() is None
    signals.give_up()


def test_a_handler_that_raises_ends_the_wait():
    class Stopped(BaseException):
        pass

    def stop(*_):
        # As soon as it is called the next signal has its usual effect.
        signals.restore()
        raise Stopped

    before = handlers()
    signals = SignalWait((signal.SIGTERM,), stop)
    with pytest.raises(Stopped), signals:
        assert handlers()[1:] == before[1:]
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM)).start()
        signals.wait()
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_forked_child_has_its_signals_back_and_tells_its_parent_nothing():
    """The pipe is both's: a child that is told to end would end its parent."""
    with SignalWait() as signals:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitpid(child, 0) == (child, signal.SIGTERM)
        assert not signals.has_come()
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.has_come()
        assert signals.wait() is signal.SIGHUP


def test_a_forked_child_may_leave_the_wait():
    with SignalWait() as signals:
        child = os.fork()
        if not child:
            signals.give_up()
            signals.__exit__()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert not signals.has_come()
