"""`heterotp trace`: traces of ranks, asked for, awaited, and merged into one."""
