"""`heterotp ui`: the page of a run or job while it runs, served on this machine alone."""
