"""Store that a version agrees with a release, in the product's data and on its page."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import devicemanager.core.versions.verified as stored
from devicemanager.core.versions.version import Verified
from tools import versions_page
from tools.differential.versions import minor

FILE: Final = Path(stored.__file__)

_HEAD: Final = '''"""The releases whose device manager was compared with the mock.

``python -m tools.differential --verified`` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping

from devicemanager.core.versions.version import Verified

VERIFIED: Mapping[int, Verified] = {
'''
_TAIL: Final = '''}
"""Last comparison of each minor version. A version that is not listed follows only the kubelet's
source code."""
'''


def text(verified: Mapping[int, Verified]) -> str:
    """Return the source of the module with the last comparison of each minor version."""
    lines = [
        f'    {number}: Verified("{each.release}", scenarios={each.scenarios}, seed={each.seed}),\n'
        for number, each in sorted(verified.items())
    ]
    return "".join([_HEAD, *lines, _TAIL])


def store(comparison: Verified, *, file: Path = FILE, page: Path = versions_page.PAGE) -> None:
    """Replace the entry of the comparison's minor version, and update the page."""
    # Read the file again: several processes can compare different versions.
    before = runpy.run_path(str(file))["VERIFIED"]
    updated = {**before, minor(comparison.release): comparison}
    file.write_text(text(updated))
    page.write_text(versions_page.page(updated))
