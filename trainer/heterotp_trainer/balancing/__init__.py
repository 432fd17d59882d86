"""Decides what each rank computes and owns: pure functions of measurements."""
