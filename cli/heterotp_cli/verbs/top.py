"""`top`: one job rank by rank, or one line per job."""

from typing import Any

import click

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs.program import OUTPUT, Program, job_command, option_if


def build(program: Program) -> click.Command:
    """Return the command for a program."""
    help_text = (
        f"Show which ranks slow a {program.thing}: per rank share, times, chi and the work taken from it, the slowest "
        f"first.\n\nWithout {program.argument}, one line per job."
    )

    @job_command(program, help_text, required=False)
    @click.option("-w", "--watch", is_flag=True, help="Follow it until it ends, or Ctrl-C.")
    @OUTPUT
    @option_if(
        program.on_cluster, "-A", "--all-namespaces", "everywhere", is_flag=True, help="Without JOB: of all namespaces."
    )
    def top(name: str | None, watch: bool, output: str | None, everywhere: bool = False, **options: Any) -> None:
        from heterotp_cli.verbs.show import show_job, show_jobs

        if name is not None and everywhere:
            raise BadInput(f"--all-namespaces: with {program.argument} '{name}': give one of them")
        target = program.open(name, **options, **({"everywhere": True} if everywhere else {}))
        if name is not None:
            show_job(target.look, watch, output == "json")
            return
        empty_text = f"there is no {program.thing} {target.where()}"
        show_jobs(target.jobs, watch, output == "json", everywhere, empty_text)

    return top
