"""Starts the ranks of one pod and forms their process groups."""
