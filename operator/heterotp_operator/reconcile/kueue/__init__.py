"""Kueue: the Workload of a job, what was admitted, and what follows from it."""
