"""Waiting for a stop signal."""

import os
import signal
import threading

import pytest

from devicemanager.plugin.common.signals import STOP_SIGNALS, SignalWait


def handlers():
    return [signal.getsignal(number) for number in STOP_SIGNALS]


def test_signal_before_the_wait_is_not_missed():
    before = handlers()
    with SignalWait() as signals:
        # Before the wait: a mechanism that only interrupts a wait would lose this signal.
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait() is signal.SIGTERM
        signals.restore()
        assert handlers() == before
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1


def test_next_interrupt_can_kill_the_process():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    mine = signal.signal(signal.SIGQUIT, lambda *_: None)
    expected = handlers()
    try:
        with SignalWait() as signals:
            signals.let_next_signal_kill()
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


def test_any_thread_can_end_the_wait():
    with SignalWait() as signals:
        threading.Thread(target=signals.give_up).start()
        assert signals.wait() is None
    signals.give_up()


def test_wait_raises_the_error_of_the_handler():
    class Stopped(BaseException):
        pass

    def stop(*_):
        # From here on, the next signal has its usual effect.
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


def test_forked_child_gets_its_handlers_back():
    """Parent and child share the pipe: a signal to the child must not stop the parent."""
    with SignalWait() as signals:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitpid(child, 0) == (child, signal.SIGTERM)
        assert not signals.is_pending()
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.is_pending()
        assert signals.wait() is signal.SIGHUP


def test_forked_child_can_leave_the_block():
    with SignalWait() as signals:
        child = os.fork()
        if not child:
            signals.give_up()
            signals.__exit__()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert not signals.is_pending()
