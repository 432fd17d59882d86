"""What a rank computes on, how its time is measured, and how it is slowed on purpose."""
