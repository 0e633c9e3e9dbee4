"""A fake API server and clients of it."""

from tests.api_fixtures import api, apiserver, connect, until

__all__ = ["api", "apiserver", "connect", "until"]
