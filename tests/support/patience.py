"""Time limits of waits in tests: long enough for a busy machine, so only a broken program reaches them."""

PATIENCE_SECONDS = 180.0  # for an event
COMPUTING_SECONDS = 540.0  # for the end of a gang that computes
