"""`heterotp validate`: the verdict of the API server, without a server."""

from collections.abc import Sequence
from pathlib import Path

import click
from heterotp_api.formatting import one_line
from heterotp_api.job import HeteroTPJob
from heterotp_api.load import Kind, ManifestError, is_foreign, load_bodies, parse_objects
from heterotp_api.template import checkpoint_error, template_error

from heterotp_cli.control import choose, unfit_policy
from heterotp_cli.errors import EXIT_BAD_INPUT


def ok_line(path: Path, item: Kind) -> str:
    """Return the line for an object that the API server would accept."""
    metadata = item.metadata
    name = f"{metadata.generate_name}*" if metadata.is_generated else metadata.name
    return one_line(f"ok {path}: {item.kind} {metadata.namespace}/{name}", 1000)


def _template_problem(item: Kind) -> str | None:
    """Return what is wrong in a job's templates as `field: value: what would be right`, which no CRD can look into."""
    return template_error(item.spec) or checkpoint_error(item.spec) if isinstance(item, HeteroTPJob) else None


def _policy_problem(items: Sequence[Kind]) -> str | None:
    """Return what the one job of a manifest cannot do of the policy that it would run with here."""
    try:
        return unfit_policy(choose(items))
    except ValueError:  # it is nothing to run as it stands, e.g. a policy without a job
        return None


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
            bodies = load_bodies(path)
            items = parse_objects(bodies, path)
            for item in items:
                if (wrong := _template_problem(item) or _policy_problem(items)) is not None:
                    raise ManifestError(str(path), "", None, wrong)
                click.echo(ok_line(path, item))
            for body in filter(is_foreign, bodies):
                click.echo(one_line(f"not judged {path}: {body['kind']} of {body['apiVersion']}", 1000))
        except ManifestError as error:
            bad = True
            click.echo(str(error), err=True)
    if bad:
        raise SystemExit(EXIT_BAD_INPUT)
