"""One node: how it registers, what it tells of itself, and how it fails."""
