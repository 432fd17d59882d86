"""`python -m heterotp_cli` is `heterotp`."""

from heterotp_cli.main import main

main()
