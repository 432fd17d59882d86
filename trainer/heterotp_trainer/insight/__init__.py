"""Who is late, in which stage, and why: pure functions of what all ranks measured. They decide nothing."""
