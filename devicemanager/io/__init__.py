"""Infrastructure: time, files, watches, retries and lazy imports.

``watch`` is the only module that sets up watchdog, and ``retry`` the only one that sets up
tenacity. The other modules solve problems that are easy to solve wrong:

* ``clock``: time as a parameter; tests advance a ``ManualClock`` instead of sleeping.
* ``safe_read``, ``kubeconfig``: read files of unknown kind, size and content.
* ``temporary``: create a directory whose path is short enough for sockets.
* ``directory_watch``: scan a directory of files, and handle each later change.
* ``parent``: end a process together with its parent.
* ``idle_pool``: reuse background objects that are expensive to create, such as threads.
* ``typed_json``: decode JSON into types, safely in several threads.
* ``lazy``: import a module only when one of its names is used.
* ``own_packages``: import this project's packages even if other packages have the same names.

Invariants: no module of this package knows devices, plugins or pods, or imports the rest of the
project. Functions and classes are thread-safe unless their docstrings say otherwise. Libraries
are loaded on first use, because a process rarely uses all of them.

Unix sockets and file identities are in :mod:`podresources.sockets`, since ``podresources`` does
not depend on ``devicemanager``.
"""
