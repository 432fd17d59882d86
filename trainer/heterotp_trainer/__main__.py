"""`python -m heterotp_trainer`: one rank of the built-in ViT trainer."""

import sys

from heterotp_trainer.train import main

if __name__ == "__main__":
    sys.exit(main())
