"""Pytest sessions that a test starts."""

_SPARED = ("cacheprovider", "hypothesispytest", "pytest_cov", "timeout", "xdist")
SPARE = tuple(flag for name in _SPARED for flag in ("-p", f"no:{name}"))
"""Without the plugins that only the suite itself uses: they would triple the time that a
session takes to start."""
