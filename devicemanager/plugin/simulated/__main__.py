"""Main program of the simulated plugin: ``python -m devicemanager.plugin.simulated``."""

import signal
import sys

# Until the plugin handles signals, let Ctrl-C kill the process: otherwise it would print a
# traceback of the imports below.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from devicemanager.plugin.simulated.command import simulate_main

sys.exit(simulate_main())
