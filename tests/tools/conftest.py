"""Fixtures of the tests of tools."""

import logging

import pytest


@pytest.fixture(autouse=True)
def log_level():
    """Restore the level that a target sets: later tests in this process read the log."""
    logger = logging.getLogger("devicemanager")
    level = logger.level
    yield
    logger.setLevel(level)
