"""The time limit of every wait in tests: long enough for a busy machine, so only a broken program reaches it."""

PATIENCE_SECONDS = 180.0
