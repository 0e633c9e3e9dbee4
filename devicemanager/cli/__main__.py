"""``python -m devicemanager.cli``: the command when its script is not on the PATH."""

import sys

from devicemanager.cli import main

sys.exit(main())
