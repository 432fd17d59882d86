"""The verbs on jobs of a cluster: `kubectl heterotp top demo`, ..."""

from typing import TYPE_CHECKING

import click

from heterotp_cli.verbs.cluster_options import WHERE
from heterotp_cli.verbs.commands import Surface, build

if TYPE_CHECKING:
    from heterotp_cli.verbs.target import Target


def _open(name: str | None, everywhere: bool = False, **where: str | None) -> "Target":
    """Open a job; what the command does not say, the group may have said before it."""
    from heterotp_cli.verbs.cluster import open_job

    above = click.get_current_context().find_root().params
    given = {option: value if value is not None else above.get(option) for option, value in where.items()}
    return open_job(name, given["namespace"], given["context"], given["kubeconfig"], everywhere)


COMMANDS = build(Surface("JOB", "job", WHERE, _open, nodes=True))
top, explain, describe_ranks, inject, policy = COMMANDS.values()
top.params.append(
    click.Option(["-A", "--all-namespaces", "everywhere"], is_flag=True, help="Without JOB: of all namespaces.")
)
