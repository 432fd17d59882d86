"""`heterotp`: the click group; a command's module is imported only when that command is called.

`heterotp --help` must stay instant, so nothing here imports torch, pydantic, rich or matplotlib.
"""

import click

from heterotp_cli.lazy import LazyGroup, enter

COMMANDS = {
    "run": ("heterotp_cli.run_command:command", "Train a HeteroTPJob manifest on this machine, without Kubernetes."),
    "top": ("heterotp_cli.verbs.local_commands:top", "Show who slows a run, rank by rank; -w follows it."),
    "explain": (
        "heterotp_cli.verbs.local_commands:explain",
        "Say in one paragraph what slows a run and what was done.",
    ),
    "describe-ranks": ("heterotp_cli.verbs.local_commands:describe_ranks", "Show all that is known of every rank."),
    "inject": ("heterotp_cli.verbs.local_commands:inject", "Slow ranks of a live run on purpose."),
    "policy": ("heterotp_cli.verbs.local_commands:policy", "Change how a live run balances."),
    "simulate": ("heterotp_cli.simulate_command:command", "Predict what every strategy would do, without training."),
    "bench": ("heterotp_cli.bench_command:command", "Redraw the paper's figures beside the paper's numbers."),
    "dashboards": ("heterotp_cli.dashboards_command:command", "Push the Grafana boards, or write them into files."),
    "validate": ("heterotp_cli.validate_command:command", "Judge manifests as the API server would."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="heterotp")
def group() -> None:
    """Tensor-parallel training that stays fast when ranks run at different speeds."""


def main() -> None:
    """Run the command line; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    enter(group, "heterotp")
