"""Admit and terminate pods for an hour while their plugin restarts, and check for growth.

``churn`` does the work in several laps. After each lap, all pods are terminated. The kubelet and
its checkpoint must then be empty, and the resource use of the process is measured. ``__main__``
compares the first laps with the last ones: memory, objects, descriptors and threads must not grow.
Times are printed, but they depend on the machine and never fail the run.
"""
