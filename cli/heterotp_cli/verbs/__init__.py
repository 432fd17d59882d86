"""The verbs that show jobs and change them while they run, the same on a cluster and in a run directory."""
