"""``python -m devicemanager.plugin.simulated``."""

import signal
import sys

# Nothing is set up yet: a traceback of the imports below would tell nobody anything.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from devicemanager.plugin.simulated.command import simulate_main

sys.exit(simulate_main())
