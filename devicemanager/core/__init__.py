"""The decisions of the device manager, and nothing else.

What belongs here: values, rules and state transitions that take facts (device lists,
pods, a time) and return facts or a wanted call. What never does: gRPC, protobuf,
threads, files, a clock, randomness, logging. Every function here gives the same output
for the same input, so the gRPC shell, the JSON vectors and the property tests can all
drive the very same code.
"""
