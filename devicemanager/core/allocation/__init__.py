"""Admission of a pod: its containers in order, and the choice of devices for each."""
