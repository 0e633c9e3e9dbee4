"""Live view of a node or a cluster on a terminal, and progress bars. Uses ``rich``.

Theory of operation. Only ``tty``, ``session`` and ``live`` access the terminal. The other modules
are pure functions, except ``progress``.

In:  a function that returns the current view (``observe.view``), log lines, keys, signals.
Out: the lines of the screen; only changed lines are written.

``live`` runs on a separate thread. It waits until the node changes, a key is pressed or a second
has passed. Then it gets the view, and ``screen.draw`` converts the view to lines. ``screen``
divides the rows among panes. A ``Subject`` (``node_subject``, ``cluster_subject``) provides the
content of the panes. ``keys`` computes a new ``ScreenState`` from the bytes of pressed keys.
``tty`` sets the terminal's mode, and ``session`` handles the signals.

Invariants:
* The terminal is always restored, even after a crash, Ctrl-C, Ctrl-Z or a closed window.
* A line never takes more cells than its width (``text``), even with hostile names and messages.
* Only the rows on the screen are rendered, because a node can have 10,000 devices.
* The program waits for a blocked terminal only when it restores the terminal, for a few seconds.

Start reading at ``screen.draw``, then ``live``. ``progress`` is independent of the rest.
"""
