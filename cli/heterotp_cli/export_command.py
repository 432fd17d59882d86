"""`heterotp export`: the model of a run, as transformers loads it."""

from pathlib import Path

import click

from heterotp_cli.errors import BadInput
from heterotp_cli.run_command import require_trainer


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="RUN_DIR")
@click.option("--to", type=click.Path(path_type=Path), required=True, help="The directory to write; new or empty.")
def command(run: Path, to: Path) -> None:
    """Write the newest checkpoint of RUN_DIR so that `from_pretrained` of transformers loads it.

    For models that heterotp.parallelize made, the built-in language trainer's included. RUN_DIR may be one checkpoint,
    e.g. RUN_DIR/checkpoints/best. Exits 0, or 2 for bad input.
    """
    require_trainer()
    from heterotp_trainer.errors import InputError
    from heterotp_trainer.parallelize.export import export

    try:
        iteration = export(run, to)
    except InputError as error:
        raise BadInput(str(error)) from None
    click.echo(f"{to}: the model of iteration {iteration}")
