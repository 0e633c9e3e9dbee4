"""Find words in pages, docstrings, comments and messages that make a sentence hard to read."""
