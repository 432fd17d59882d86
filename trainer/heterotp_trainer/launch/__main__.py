"""`python -m heterotp_trainer.launch`: the launcher of one pod."""

import sys

from heterotp_trainer.launch.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
