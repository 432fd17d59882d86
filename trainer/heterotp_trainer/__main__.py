"""`python -m heterotp_trainer`: one rank of a built-in trainer."""

from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.training.builtin import main

if __name__ == "__main__":
    run_rank(main)
