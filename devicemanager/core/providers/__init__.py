"""Hint providers: what takes part in topology alignment besides devices."""
