"""`describe-ranks`: all known values of every rank."""

import time
from typing import Any

import click

from heterotp_cli.verbs.program import OUTPUT, Program, job_command


def build(program: Program) -> click.Command:
    """Return the command for a program."""

    @job_command(program, f"Show all known values of every rank of a {program.thing}.")
    @OUTPUT
    def describe_ranks(name: str, output: str | None, **options: Any) -> None:
        from heterotp_cli.verbs.show import show_ranks

        show_ranks(program.open(name, **options).look(), time.time(), output == "json")

    return describe_ranks
