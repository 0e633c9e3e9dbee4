"""A program with a live view, for tests of signals; it starts faster than a kubelet."""

import os

from devicemanager.observe.terminal.live import LiveView
from devicemanager.observe.terminal.session import (
    TerminalSignals,
    is_live_terminal,
    standard_terminal,
)
from devicemanager.observe.view import NodeView
from devicemanager.plugin.common.signals import SignalWait

assert is_live_terminal()
view = LiveView(standard_terminal(), lambda: NodeView(1, "a test"), lambda error: os._exit(7))
with SignalWait([]) as signals, TerminalSignals(view):
    view.start()
    try:
        signals.wait()
    finally:
        view.close()
