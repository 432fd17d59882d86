"""`heterotp` as a program with verbs on jobs: a job is a run directory."""

from typing import TYPE_CHECKING

from heterotp_cli.verbs.program import Program

if TYPE_CHECKING:
    from heterotp_cli.verbs.target import Target


def _open(name: str | None) -> "Target":
    from heterotp_cli.verbs.local import open_run

    return open_run(name)


LOCAL = Program("RUN_DIR", "run", (), _open, on_cluster=False)
