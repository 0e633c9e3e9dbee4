"""Run the command ``devicemanager`` as ``python -m devicemanager.cli``."""

import sys

from devicemanager.cli import main

sys.exit(main())
