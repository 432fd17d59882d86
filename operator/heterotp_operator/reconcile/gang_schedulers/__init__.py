"""Gang schedulers: one file each, listed in registry.py."""
