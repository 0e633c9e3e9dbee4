"""A minimal shell with job control: one foreground job, Ctrl-Z, ``fg``, exit status.

Run ``python shell.py COMMAND…`` in a new session with a terminal as its standard input.
"""

import fcntl
import os
import signal
import subprocess
import sys
import termios

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
job = subprocess.Popen(sys.argv[1:], process_group=0)
while True:
    os.tcsetpgrp(0, job.pid)
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        break
    print("STOPPED", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
print("ENDED", os.waitstatus_to_exitcode(status), flush=True)
sys.stdin.readline()
