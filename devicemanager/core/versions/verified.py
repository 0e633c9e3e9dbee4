"""The releases whose device manager was compared with the mock.

``python -m tools.differential --verified`` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping

from devicemanager.core.versions.version import Verified

VERIFIED: Mapping[int, Verified] = {
    25: Verified("1.25.16", scenarios=300, seed=24),
    26: Verified("1.26.15", scenarios=300, seed=24),
    27: Verified("1.27.16", scenarios=300, seed=24),
    36: Verified("1.36.3", scenarios=300, seed=3),
    37: Verified("1.37.2", scenarios=300, seed=2412),
}
"""Last comparison of each minor version. Other versions only follow the kubelet's source code."""
