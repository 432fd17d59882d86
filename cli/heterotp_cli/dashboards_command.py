"""`heterotp dashboards`: write the Grafana boards to a Grafana, or into files."""

import importlib.util
import os
from pathlib import Path

import click

from heterotp_cli.errors import BadInput, Failed


@click.group("dashboards")
def command() -> None:
    """Push the Grafana boards, or write them with the Prometheus rules into files."""
    for module in ("grafana_foundation_sdk", "grafana_api"):
        if importlib.util.find_spec(module) is None:
            raise Failed(f"{module} is not installed: pip install 'heterotp[cli]'")


@command.command("push")
@click.option("--grafana-url", required=True, metavar="URL", help="http://HOST[:PORT][/PREFIX] of the Grafana.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="F",
    help="File with a service account's token (role Editor); else the environment's GRAFANA_TOKEN is taken.",
)
@click.option(
    "--folder", metavar="NAME", help="Title or uid of the folder; default: their present folder, else the root."
)
@click.option("--create-folder", is_flag=True, help="Create the folder if it does not exist.")
@click.option("--force", is_flag=True, help="Overwrite boards that were changed by hand since the last push.")
def push(grafana_url: str, token_file: Path | None, folder: str | None, create_folder: bool, force: bool) -> None:
    """Update the boards of a Grafana to this version.

    Prints one line per board: created, updated, moved, overwritten or unchanged, and its address. A board that was
    changed by hand is refused, and then none is written.
    """
    if create_folder and not folder:
        raise BadInput("--create-folder: needs --folder NAME")
    token = read_token(token_file)
    from heterotp_dashboards.boards import boards

    from heterotp_cli import dashboards_push
    from heterotp_cli.grafana import Grafana

    grafana = Grafana(grafana_url, token)
    for outcome in dashboards_push.push(grafana, boards(), folder, create_folder, force):
        click.echo(f"{outcome.verdict} {outcome.uid}: {outcome.address}")


def read_token(file: Path | None) -> str:
    """Return the token of the file or of the environment, "" if there is none."""
    if file is None:
        return os.environ.get("GRAFANA_TOKEN", "").strip()
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadInput(f"--token-file: {file}: cannot be read: {reason}") from None
    if not token or len(token.split()) != 1:
        raise BadInput(f"--token-file: {file}: must hold one token and nothing else")
    return token


@command.command("export")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def export(directory: Path) -> None:
    """Write boards and rules into files.

    Boards are JSON, to import or to provision; heterotp-rules.yaml is a rule file for Prometheus.
    """
    from heterotp_dashboards.generate import write_files

    try:
        for path in write_files(directory):
            click.echo(f"wrote {path}")
    except OSError as error:
        raise BadInput(f"{directory}: cannot be written: {error.strerror}: name another directory") from None
