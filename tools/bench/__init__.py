"""Benchmarks: what the mock kubelet costs, beside the baseline of the same run.

Every case runs in a fresh process, its plugin in another; whatever is compared is measured
in turns within one run, so that a noisy machine hits both. Nothing here passes or fails.
"""
