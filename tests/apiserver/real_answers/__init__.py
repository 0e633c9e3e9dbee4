"""Requests whose answers a real API server gave: the table, the recorded answers, and the runner.

``table`` has the requests, ``running`` sends them, and ``answers.jsonl`` has the answers of
kube-apiserver. ``python -m tests.apiserver.real_answers.real_server`` records them again.
"""
