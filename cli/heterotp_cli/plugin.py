"""`kubectl heterotp`: the verbs on jobs of a cluster; kubectl finds it by its name, `kubectl-heterotp`.

`kubectl heterotp --help` must stay instant, so nothing here imports pydantic, rich or kubernetes.
"""

import click

from heterotp_cli.lazy import LazyGroup, enter
from heterotp_cli.registry import JOB_VERBS
from heterotp_cli.verbs.kubectl_commands import CLUSTER

SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, verbs=JOB_VERBS, program=CLUSTER, params=list(CLUSTER.options), context_settings=SETTINGS)
@click.version_option(package_name="heterotp")
def group(**options: str | None) -> None:
    """Show which ranks slow the HeteroTPJobs of a cluster and what balancing does; inject slow-downs, set policies."""


def main() -> None:
    """Run the plugin; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    enter(group, "kubectl heterotp")


if __name__ == "__main__":
    main()
