"""`inject`: slow ranks of a live job, or remove what slowed them."""

from typing import Any, get_args

import click
from heterotp_api.slowdown import MOST_SLOWDOWN, SlowdownMode

from heterotp_cli.verbs.program import NO_WAIT, Program, finish_change, job_command, option_if, refuse_beside


def build(program: Program) -> click.Command:
    """Return the command for a program."""
    help_text = (
        f"Slow ranks of a {program.thing} down on purpose, to test balancing.\n\nThe same ranks again: in place of the "
        "injection before. --off removes the injections of these ranks, or of all ranks."
    )

    @job_command(program, help_text)
    @click.option("--rank", "ranks", multiple=True, type=int, help="A rank; may be given several times.")
    @click.option("--group", "groups", multiple=True, help="All ranks of a worker group.")
    @option_if(program.on_cluster, "--node", "nodes", multiple=True, help="All ranks on a node.")
    @click.option("--chi", type=float, help=f"How many times slower, 1 .. {MOST_SLOWDOWN}.")
    @click.option("--for", "length", metavar="DURATION", help="10m, 90s, 1h30m; default: until --off.")
    @click.option(
        "--mode",
        metavar="|".join(get_args(SlowdownMode)),
        help="How to slow; default: sleep on cpu and emulated, spin on cuda.",
    )
    @click.option("--off", is_flag=True, help="Remove the injections.")
    @NO_WAIT
    def inject(
        name: str,
        ranks: tuple[int, ...],
        groups: tuple[str, ...],
        chi: float | None,
        length: str | None,
        mode: str | None,
        off: bool,
        no_wait: bool,
        nodes: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        from heterotp_cli.verbs import change_requests

        selector = change_requests.rank_selector(ranks, groups, nodes)
        if off:
            refuse_beside("--off", {"--chi": chi, "--for": length, "--mode": mode})
            finish_change(program.open(name, **options).remove_injections(selector), no_wait)
            return
        slowdown = change_requests.slowdown_request(chi, length, mode)
        change_requests.injection("job", "default", selector, slowdown)  # refuses wrong options before any request
        finish_change(program.open(name, **options).inject(selector, slowdown), no_wait)

    return inject
