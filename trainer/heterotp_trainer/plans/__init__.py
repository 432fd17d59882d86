"""Plans as data, without torch: the owner of each unit, the work of each rank, and the costs of both."""
