"""The verbs on run directories: `heterotp top runs/demo`, ..."""

from typing import TYPE_CHECKING

from heterotp_cli.verbs.commands import Surface, build

if TYPE_CHECKING:
    from heterotp_cli.verbs.target import Target


def _open(name: str | None) -> "Target":
    from heterotp_cli.verbs.local import open_run

    return open_run(name)


COMMANDS = build(Surface("RUN_DIR", "run", (), _open, nodes=False))
top, explain, describe_ranks, inject, policy = COMMANDS.values()
