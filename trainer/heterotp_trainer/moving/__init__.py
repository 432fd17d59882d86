"""Units on their way to another rank: what belongs to them, in which messages they travel, and the memory for it."""
