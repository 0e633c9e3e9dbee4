"""Find words in documentation, docstrings, comments and messages that make a sentence hard to read."""
