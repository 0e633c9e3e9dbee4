"""A node, or nodes in a cluster, on a terminal: a live view with rich, and progress of long work.

What belongs here: how a picture (``observe.view``) looks in rows and columns (``text``,
``panes``, ``subject``, ``screen``: pure), what keys do (``keys``: pure), the terminal itself
(``tty``), the loop that joins them (``live``), and bars on standard error (``progress``). What
never does: knowing where a picture comes from, or steering a kubelet.
"""
