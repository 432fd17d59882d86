"""`python -m heterotp_trainer`: one rank of the built-in ViT trainer."""

from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.training.vision import main

if __name__ == "__main__":
    run_rank(main)
