"""Replay recorded vectors through the real code and say where they disagree.

Reads files in the formats of the vectors and reports; never the place for behaviour
that the packages should have, nor for exceptions that make a vector pass.
"""
