"""Live view of a node or a cluster on a terminal, and progress bars. Uses ``rich``.

Theory of operation. Everything that computes is pure; only ``tty``, ``session`` and ``live``
touch the terminal.

In:  a function that returns the current view (``observe.view``), log lines, keys, signals.
Out: the lines of the screen; only those that changed are written.

``live`` runs on a separate thread. It waits for a change, a key or a second, gets the view,
and has ``screen.draw`` turn it into lines. ``screen`` divides the rows among panes; what a pane
shows comes from a ``Subject`` (``node_subject``, ``cluster_subject``). ``keys`` turns bytes into
a new ``ScreenState``. ``tty`` owns the terminal's mode, ``session`` the signals.

Invariants:
* The terminal is always restored: after a crash, Ctrl-C, Ctrl-Z or a closed window.
* A line fits its cells (``text``), even with hostile names and messages of plugins.
* Drawing makes only the rows on the screen: a node can have 10,000 devices.
* The program never waits for the terminal.

Start reading at ``screen.draw``, then ``live``. ``progress`` is independent of the rest.
"""
