"""The demo: what this project does, shown and checked step by step."""
