"""`policy`: change how a live job balances."""

from typing import Any, get_args

import click
from heterotp_api.strategies import Strategy

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs.program import NO_WAIT, Program, finish_change, job_command, refuse_beside


def build(program: Program) -> click.Command:
    """Return the command for a program."""
    help_text = (
        f"Change how a {program.thing} balances, while it runs.\n\n"
        "The options give the whole policy: a field that is not given has its default."
    )

    @job_command(program, help_text)
    @click.option("--strategy", help=f"One of {', '.join(get_args(Strategy))}.")
    @click.option("--max-pruned-share", type=float, help="Upper bound of deleted work, 0 .. 1.")
    @click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any field of a policy, e.g. zero.selection=Rd."
    )
    @click.option("--default", is_flag=True, help="Return to the policy that applies without any setting.")
    @NO_WAIT
    def policy(
        name: str,
        strategy: str | None,
        max_pruned_share: float | None,
        sets: tuple[str, ...],
        default: bool,
        no_wait: bool,
        **options: Any,
    ) -> None:
        from heterotp_cli.verbs import change_requests

        if default:
            given = {"--strategy": strategy, "--max-pruned-share": max_pruned_share, "--set": sets or None}
            refuse_beside("--default", given)
            finish_change(program.open(name, **options).set_default(), no_wait)
            return
        if strategy is None:
            raise BadInput("--strategy: is required, e.g. --strategy SEMI; --default takes a policy back")
        change_requests.policy_request(strategy, max_pruned_share, sets, None)  # refuses wrong options first
        finish_change(program.open(name, **options).set_policy(strategy, max_pruned_share, sets), no_wait)

    return policy
