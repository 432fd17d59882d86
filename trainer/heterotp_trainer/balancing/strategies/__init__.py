"""The balancing strategies, one file each."""
