"""Hint providers: CPUs and memory, which take part in topology alignment like devices do."""
