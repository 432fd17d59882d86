"""`explain`: one paragraph on what slows a job."""

import time
from typing import Any

import click

from heterotp_cli.verbs.program import Program, job_command


def build(program: Program) -> click.Command:
    """Return the command for a program."""
    help_text = (
        f"Explain in one paragraph what slows a {program.thing} now, what was done, and what it would cost to do "
        "nothing."
    )

    @job_command(program, help_text)
    def explain(name: str, **options: Any) -> None:
        from heterotp_cli.verbs.explanation import explain as paragraph
        from heterotp_cli.verbs.show import wrapped

        target = program.open(name, **options)
        click.echo(wrapped(paragraph(target.look(), time.time(), target.command("policy"))))

    return explain
