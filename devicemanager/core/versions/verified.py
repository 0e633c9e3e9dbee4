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
    28: Verified("1.28.15", scenarios=1000, seed=4228),
    29: Verified("1.29.6", scenarios=3000, seed=4229),
    30: Verified("1.30.14", scenarios=1000, seed=4230),
    31: Verified("1.31.14", scenarios=1000, seed=4231),
    32: Verified("1.32.13", scenarios=3000, seed=4104),
    33: Verified("1.33.13", scenarios=1000, seed=4233),
    34: Verified("1.34.4", scenarios=1000, seed=4234),
    35: Verified("1.35.4", scenarios=1000, seed=4101),
    36: Verified("1.36.3", scenarios=1000, seed=4236),
    37: Verified("1.37.2", scenarios=1000, seed=4237),
}
"""Last comparison of each minor version. A version that is not listed follows only the kubelet's
source code."""
