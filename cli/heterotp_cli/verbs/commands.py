"""The five verbs as commands, built twice: for jobs of a cluster and for run directories."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heterotp_cli.errors import BadInput, Failed

if TYPE_CHECKING:  # what looks and draws is imported when a verb is called, not for its help
    from heterotp_cli.verbs.target import Change, Target

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
MODES = ("sleep", "spin", "repeat")


@dataclass(frozen=True)
class Surface:
    """Where the verbs are used: how a job is called, the options that find it, and what opens it."""

    argument: str
    thing: str
    options: Sequence[click.Option]
    open: Callable[..., "Target"]
    nodes: bool


def build(surface: Surface) -> dict[str, click.Command]:
    """Return the commands by name."""
    made = (_top(surface), _explain(surface), _describe_ranks(surface), _inject(surface), _policy(surface))
    return {str(command.name): command for command in made}


def _named(surface: Surface, name: str, text: str, required: bool = True) -> Callable[[Decorated], click.Command]:
    """Return the decorator of a verb on one job."""

    def decorate(function: Decorated) -> click.Command:
        argument = click.argument(
            "name", metavar=surface.argument if required else f"[{surface.argument}]", required=required
        )
        command = click.command(name, help=text)(argument(function))
        command.params += surface.options
        return command

    return decorate


NO_WAIT = click.option("--no-wait", is_flag=True, help="Do not wait until all ranks follow.")
OUTPUT = click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")


def _top(surface: Surface) -> click.Command:
    text = (
        f"Show who slows a {surface.thing}: per rank share, times, chi and what was taken from it, the slowest first."
        f"\n\nWithout {surface.argument}, one line per job."
    )

    @_named(surface, "top", text, required=False)
    @click.option("-w", "--watch", is_flag=True, help="Follow it until it ends, or Ctrl-C.")
    @OUTPUT
    def top(name: str | None, watch: bool, output: str | None, **where: Any) -> None:
        from heterotp_cli.verbs.show import show_job, show_jobs

        if name is not None and where.get("everywhere"):
            raise BadInput(f"--all-namespaces: with {surface.argument} '{name}': give one of them")
        target = surface.open(name, **where)
        if name is None:
            empty_text = f"there is no {surface.thing} {target.where()}"
            show_jobs(target.jobs, watch, output == "json", bool(where.get("everywhere")), empty_text)
        else:
            show_job(target.look, watch, output == "json")

    return top


def _explain(surface: Surface) -> click.Command:
    text = (
        f"Say in one paragraph what slows a {surface.thing} now, what was done, and what it would cost to do nothing."
    )

    @_named(surface, "explain", text)
    def explain(name: str, **where: Any) -> None:
        from heterotp_cli.verbs.explain import explain as paragraph
        from heterotp_cli.verbs.show import wrapped

        target = surface.open(name, **where)
        click.echo(wrapped(paragraph(target.look(), time.time(), target.command("policy"))))

    return explain


def _describe_ranks(surface: Surface) -> click.Command:
    text = f"Show all that is known of every rank of a {surface.thing}."

    @_named(surface, "describe-ranks", text)
    @OUTPUT
    def describe_ranks(name: str, output: str | None, **where: Any) -> None:
        from heterotp_cli.verbs.show import show_ranks

        show_ranks(surface.open(name, **where).look(), time.time(), output == "json")

    return describe_ranks


def _inject(surface: Surface) -> click.Command:
    text = (
        f"Slow ranks of a {surface.thing} down on purpose, to see what balancing makes of it.\n\nThe same ranks again: "
        "in place of the injection before. --off takes back what was injected, into these ranks or into all."
    )

    @_named(surface, "inject", text)
    @click.option("--rank", "ranks", multiple=True, type=int, help="A rank; may be given several times.")
    @click.option("--group", "groups", multiple=True, help="All ranks of a worker group.")
    @_when(surface.nodes, click.option("--node", "nodes", multiple=True, help="All ranks on a node."))
    @click.option("--chi", type=float, help="How many times slower, 1 .. 1000.")
    @click.option("--for", "length", metavar="DURATION", help="10m, 90s, 1h30m; without it until it is taken back.")
    @click.option("--mode", metavar="|".join(MODES), help="How; default: sleep on cpu and emulated, spin on cuda.")
    @click.option("--off", is_flag=True, help="Take it back.")
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
        **where: Any,
    ) -> None:
        from heterotp_cli.verbs import change_requests

        selector = change_requests.rank_selector(ranks, groups, nodes)
        if off:
            _refuse_beside("--off", {"--chi": chi, "--for": length, "--mode": mode})
            _settle(surface.open(name, **where).remove_injections(selector), no_wait)
            return
        how = change_requests.slowdown_request(chi, length, mode)
        change_requests.injection("job", "default", selector, how)  # wrong options are said before anybody is asked
        _settle(surface.open(name, **where).inject(selector, how), no_wait)

    return inject


def _policy(surface: Surface) -> click.Command:
    text = (
        f"Change how a {surface.thing} balances, while it runs.\n\n"
        "The policy is given whole: what is not named has its default."
    )

    @_named(surface, "policy", text)
    @click.option("--strategy", help="None, ZERO, MIG, SEMI, RESHARD or AUTO.")
    @click.option("--max-pruned-share", type=float, help="Upper bound of deleted work, 0 .. 1.")
    @click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any field of a policy, e.g. zero.selection=Rd."
    )
    @click.option("--default", is_flag=True, help="Back to the policy that holds when nobody names one.")
    @NO_WAIT
    def policy(
        name: str,
        strategy: str | None,
        max_pruned_share: float | None,
        sets: tuple[str, ...],
        default: bool,
        no_wait: bool,
        **where: Any,
    ) -> None:
        from heterotp_cli.verbs import change_requests

        if default:
            given = {"--strategy": strategy, "--max-pruned-share": max_pruned_share, "--set": sets or None}
            _refuse_beside("--default", given)
            _settle(surface.open(name, **where).set_default(), no_wait)
            return
        if strategy is None:
            raise BadInput("--strategy: is required, e.g. --strategy SEMI; --default takes a policy back")
        change_requests.policy_request(
            strategy, max_pruned_share, sets, None
        )  # wrong options are said before anybody is asked
        _settle(surface.open(name, **where).set_policy(strategy, max_pruned_share, sets), no_wait)

    return policy


def _when(holds: bool, option: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    return option if holds else lambda function: function


def _refuse_beside(flag: str, others: Mapping[str, object]) -> None:
    given = next((option for option, value in others.items() if value is not None), None)
    if given is not None:
        raise BadInput(f"{given}: with {flag}: give one of them")


def _settle(change: "Change", no_wait: bool) -> None:
    """Say what was changed and how to take it back; wait until it holds."""
    from heterotp_cli.verbs.target import await_change

    click.echo(change.description)
    if change.undo_command:
        click.echo(f"take it back: {change.undo_command}")
    if no_wait:
        return
    status, passed = await_change(change, time.monotonic, time.sleep)
    if status.verdict == "refused":
        raise Failed(f"refused: {status.text}")
    if status.verdict == "pending":
        raise Failed(f"not in force after {passed:.0f} s: {status.text}")
    click.echo(status.text if status.verdict == "later" else f"in force on all ranks after {passed:.1f} s")
