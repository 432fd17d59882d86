"""The straggler board of more ranks than a panel has rows for: those that matter are shown, on a real Prometheus."""

import pytest
from heterotp_dashboards.alerts import Thresholds
from heterotp_dashboards.boards import boards
from heterotp_dashboards.queries import MOST_RANKS
from heterotp_dashboards.rule_files import prometheus_rules
from support.board_history import STEP, Story, write
from support.board_queries import Window, ask, board_queries, resolve_variables
from support.prometheus_server import PrometheusServer

START, MINUTES = 1_790_000_010, 10
WINDOW = Window(START, START + 60 * MINUTES)
SLOW = 19
MANY = Story("team-a", "many", ranks=2 * MOST_RANKS, slow_rank=SLOW, slow_from=2, balanced_from=None, pace=10)
(BOARD,) = (board for board in boards() if board["uid"] == "heterotp-straggler")
SHOWN = {  # how many ranks; only one rank costs the others anything
    "Slow-down χ, rank by time": MOST_RANKS,
    "Lost to a rank, rank by time": MOST_RANKS,
    "Lost to a rank per iteration, by stage": 1,
    "Where the time goes, by rank": MOST_RANKS,
    "Work of ranks, now": MOST_RANKS,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    directory = tmp_path_factory.mktemp("prometheus")
    with (directory / "history.om").open("w") as file:
        write(file, [MANY], START, MINUTES)
    server = PrometheusServer(directory)
    server.load(directory / "history.om")
    server.record(prometheus_rules(Thresholds()), START, START + 60 * MINUTES, STEP)
    server.start()
    yield server.url
    server.stop()


@pytest.mark.parametrize("title", SHOWN)
def test_the_rank_that_matters_is_among_those_shown(title, url):
    values = resolve_variables(BOARD, url, WINDOW, heterotpjob=MANY.job)
    queries = [query for query in board_queries(BOARD, values, WINDOW) if query.asker == title]
    assert queries
    for query in queries:
        ranks = {series["metric"]["rank"] for series in ask(query, url, WINDOW)}
        assert len(ranks) == SHOWN[title]
        assert str(SLOW) in ranks or title == "Work of ranks, now"  # nothing was taken from it
