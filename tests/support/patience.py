"""How long a test waits for what must happen: only a broken program reaches it, however busy the machine is."""

PATIENCE_SECONDS = 180.0
