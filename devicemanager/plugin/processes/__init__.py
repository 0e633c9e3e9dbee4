"""Run a plugin as a process under a supervisor, if required with private mounts at fixed paths.

Theory of operation. ``SupervisedRun`` (``run``) starts a supervisor process, which starts the
command. Two pipes connect the starting program with the supervisor. The *lifeline* is closed when
the starting program closes it or exits, even by SIGKILL. Then the supervisor kills the command and
all its descendants. Through the *report*, the supervisor sends the command's process ID to the
starting program. The supervisor also adopts the command's orphans (``PR_SET_CHILD_SUBREAPER``), so
no process is left behind.

Plugins with hard-coded paths run in a private user and mount namespace (``namespace``), in which a
mock kubelet's directory is at ``/var/lib/kubelet``. Supervisor and namespaces need no root.

In:  a command, its environment, directories to mount (``Bind``).
Out: process ID, output, exit status.

Invariants: signals and the exit status pass through the supervisor unchanged; the file system view
of other processes does not change. Start reading at ``run``, then ``supervisor``. ``scarce``
limits inotify instances for a command.
"""
