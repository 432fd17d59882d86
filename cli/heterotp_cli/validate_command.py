"""`heterotp validate`: the verdict of the API server, without a server."""

from pathlib import Path

import click
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import Kind, ManifestError, is_foreign, load_bodies, load_manifest
from heterotp_api.template import template_error

from heterotp_cli.errors import EXIT_BAD_INPUT


def ok_line(path: Path, item: Kind) -> str:
    """Return the line for an object that the API server would accept."""
    return f"ok {path}: {item.kind} {item.metadata.namespace}/{item.metadata.name}"


@click.command("validate")
@click.argument("manifests", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MANIFEST...")
def command(manifests: tuple[Path, ...]) -> None:
    """Validate manifests as the API server would, CEL rules included.

    Prints `ok` for every valid object, `not judged` for kinds of other projects and one line
    `file: field: value what would be right` for every invalid file. Exits 0 when all are valid, else 2.
    """
    bad = False
    for path in manifests:
        try:
            for item in load_manifest(path):
                wrong = template_error(item.spec) if isinstance(item, HeteroTPJob) else None
                if wrong is not None:
                    raise ManifestError(str(path), "", None, wrong)
                click.echo(ok_line(path, item))
            for body in filter(is_foreign, load_bodies(path)):
                click.echo(f"not judged {path}: {body['kind']} of {body['apiVersion']}")
        except ManifestError as error:
            bad = True
            click.echo(str(error), err=True)
    if bad:
        raise SystemExit(EXIT_BAD_INPUT)
