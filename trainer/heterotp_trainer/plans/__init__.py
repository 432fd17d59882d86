"""Plans as data, without torch: who owns which units, who computes what, and what that costs."""
