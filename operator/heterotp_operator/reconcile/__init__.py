"""Decisions of the operator: pure functions from what was observed to what is to be done and shown."""
