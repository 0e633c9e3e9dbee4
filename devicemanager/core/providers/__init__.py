"""Hint providers for CPUs and memory, which are aligned to NUMA nodes together with devices."""
