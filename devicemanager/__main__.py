"""``python -m devicemanager``: the command where its script is not on the path."""

import sys

from devicemanager.cli import main

sys.exit(main())
