"""`kubectl heterotp`: the verbs on jobs of a cluster; kubectl finds it by its name, `kubectl-heterotp`.

`kubectl heterotp --help` must stay instant, so nothing here imports pydantic, rich or kubernetes.
"""

import click

from heterotp_cli.lazy import LazyGroup, enter
from heterotp_cli.verbs.cluster_options import WHERE

COMMANDS = {
    "top": ("heterotp_cli.verbs.kubectl_commands:top", "Show who slows a job, rank by rank; -w follows it."),
    "explain": (
        "heterotp_cli.verbs.kubectl_commands:explain",
        "Say in one paragraph what slows a job and what was done.",
    ),
    "describe-ranks": ("heterotp_cli.verbs.kubectl_commands:describe_ranks", "Show all that is known of every rank."),
    "inject": ("heterotp_cli.verbs.kubectl_commands:inject", "Slow ranks on purpose."),
    "policy": ("heterotp_cli.verbs.kubectl_commands:policy", "Change how a running job balances."),
}


@click.group(
    cls=LazyGroup, table=COMMANDS, params=list(WHERE), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="heterotp")
def group(**where: str | None) -> None:
    """See and steer HeteroTPJobs: who slows them, what balancing does about it."""


def main() -> None:
    """Run the plugin; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    enter(group, "kubectl heterotp")


if __name__ == "__main__":
    main()
