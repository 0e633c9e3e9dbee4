"""Admit and terminate pods for an hour while their plugin restarts, and check for growth.

``churn`` does the work, lap by lap. After each lap, when no pods are left, the kubelet and its
checkpoint must be empty and agree, and the process is measured. ``__main__`` compares the first
laps with the last ones: memory, objects, descriptors and threads must not grow. Times are
printed, but they depend on the machine and never fail the run.
"""
