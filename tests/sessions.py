"""Pytest sessions that a test starts."""

_SPARED = ("cacheprovider", "hypothesispytest", "pytest_cov", "timeout", "xdist")
SPARE = tuple(flag for name in _SPARED for flag in ("-p", f"no:{name}"))
"""Options without the plugins that only this suite uses: they would triple the start-up time."""
