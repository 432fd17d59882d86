"""`python -m heterotp_trainer`: one rank of the built-in ViT trainer."""

from heterotp_trainer.entry import run_rank
from heterotp_trainer.train import main

if __name__ == "__main__":
    run_rank(main)
