"""Fixtures of the tests of commands."""

import pytest
import yaml


@pytest.fixture
def written(tmp_path):
    """Return a function that writes YAML documents to a file, and returns its path."""

    def write(*documents, name="x.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    return write
