"""The list of all boards."""

from heterotp_dashboards import fleet, operator_board
from heterotp_dashboards.frame import Json, as_json
from heterotp_dashboards.straggler import board as straggler


def boards() -> list[Json]:
    """Return every board as Grafana imports it."""
    return [as_json(made) for made in (straggler.board(), fleet.board(), operator_board.board())]
