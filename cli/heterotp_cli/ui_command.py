"""`ui`: the page of a job while it runs, served on this machine."""

import webbrowser
from typing import TYPE_CHECKING, Any

import click

from heterotp_cli.ui.needed import require_server
from heterotp_cli.verbs.program import Program, job_command

if TYPE_CHECKING:
    from heterotp_cli.ui.server import Feed


def build(program: Program) -> click.Command:
    """Return the command for a program."""
    default = "" if program.on_cluster else f" Without {program.argument}: the newest run below ./runs."
    help_text = (
        f"Serve a page that shows a {program.thing} while it runs: times, slow ranks, loss, decisions; its buttons "
        f"change policy and injections.{default}\n\nOnly this machine can reach it, by the address that is printed. "
        "Ctrl-C ends it."
    )

    @job_command(program, help_text, required=program.on_cluster)
    @click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; default: a free one.")
    @click.option("--open", "browse", is_flag=True, help="Open the page in the browser.")
    def ui(name: str | None, port: int, browse: bool, **options: Any) -> None:
        require_server()
        feed = _feed(program, name, options)
        from heterotp_cli.ui.serve import serve

        feed.look()  # what cannot be read is refused before an address is printed

        def started(address: str) -> None:
            click.echo(f"page of {feed.target.name}: {address}")
            if browse:
                webbrowser.open(address)

        serve(feed, port, started)

    return ui


def _feed(program: Program, name: str | None, options: dict[str, Any]) -> "Feed":
    if program.on_cluster:
        from heterotp_cli.ui.cluster_feed import ClusterFeed

        return ClusterFeed(program.open(name, **options))
    from heterotp_cli.ui.local_feed import LocalFeed
    from heterotp_cli.verbs.local import newest_run, open_run

    return LocalFeed(open_run(name if name is not None else newest_run()))
