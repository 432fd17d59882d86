"""`heterotp`: the click group; a verb's module is imported only when that verb is called.

`heterotp --help` must stay instant, so nothing here imports torch, pydantic, rich or matplotlib.
"""

import click

from heterotp_cli.lazy import LazyGroup, enter
from heterotp_cli.registry import VERBS
from heterotp_cli.verbs.local_commands import LOCAL

SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, verbs=VERBS, program=LOCAL, context_settings=SETTINGS)
@click.version_option(package_name="heterotp")
def group() -> None:
    """Tensor-parallel training that stays fast when ranks run at different speeds."""


def main() -> None:
    """Run the command line; exit 0 done, 1 failed, 2 bad input, 130 stopped by Ctrl-C."""
    enter(group, "heterotp")
