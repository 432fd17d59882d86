"""`heterotp simulate`: what every strategy would do for a job, without training."""
