"""``python -m devicemanager.plugin.simulated``."""

import sys

from devicemanager.plugin.simulated.command import simulate_main

sys.exit(simulate_main())
