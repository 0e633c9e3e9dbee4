"""Infrastructure: time, files, watches, retries and lazy imports.

It has the only set-up of two libraries (``watch`` for watchdog, ``retry`` for tenacity) and the
only way to do some things that are easy to do wrong:

* ``clock``: time as a parameter; tests advance a ``ManualClock`` instead of sleeping.
* ``safe_read``, ``kubeconfig``: read a file that can be anything, of any size.
* ``temporary``: make a directory whose path is short enough for sockets.
* ``directory_watch``: follow a directory of files, from its first scan through every change.
* ``idle_pool``: share expensive background objects between consecutive users in a process.
* ``lazy``, ``own_packages``: imports of this project.

Invariants: nothing here knows devices, plugins or pods, or imports the rest of the project.
Everything is thread-safe unless its docstring says otherwise. Libraries are loaded on first use,
because a process rarely uses them all.

Unix sockets and file identities are in :mod:`podresources.sockets`, since ``podresources`` does
not depend on ``devicemanager``.
"""
