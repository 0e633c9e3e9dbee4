"""``python -m tools.site [DIR]``: build the documentation as a web site, offline.

Broken links, unknown references, and pages that no section lists are errors.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site import reference, sources

_ROOT = Path(__file__).parents[2]
_PLACE = _ROOT / ".cache" / "site"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    help_text = "output directory (default: %(default)s)"
    parser.add_argument("directory", nargs="?", type=Path, default=_PLACE / "html", help=help_text)
    args = parser.parse_args()
    gathered = _PLACE / "source"
    # Start with an empty directory: pages that were removed or renamed must not stay on the site.
    shutil.rmtree(gathered, ignore_errors=True)
    made = reference.write(gathered)
    sources.gather(_ROOT, gathered, {"Reference": made})
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--fresh-env"]
    status: int = build_main(
        [*options, "-c", str(Path(__file__).parent), str(gathered), str(args.directory)]
    )
    if status == 0:
        print(f"{args.directory}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
