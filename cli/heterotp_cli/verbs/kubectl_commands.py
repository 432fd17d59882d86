"""`kubectl heterotp` as a program with verbs on jobs: a job is a HeteroTPJob of a cluster."""

from typing import TYPE_CHECKING

import click

from heterotp_cli.verbs.cluster_options import CLUSTER_OPTIONS
from heterotp_cli.verbs.program import Program

if TYPE_CHECKING:
    from heterotp_cli.verbs.target import Target


def _open(name: str | None, everywhere: bool = False, **options: str | None) -> "Target":
    """Open a job; an option that is not given behind the verb is taken from before the verb."""
    from heterotp_cli.verbs.cluster import open_job

    before = click.get_current_context().find_root().params
    given = {option: value if value is not None else before.get(option) for option, value in options.items()}
    return open_job(name, given["namespace"], given["context"], given["kubeconfig"], everywhere)


CLUSTER = Program("JOB", "job", CLUSTER_OPTIONS, _open, on_cluster=True)
