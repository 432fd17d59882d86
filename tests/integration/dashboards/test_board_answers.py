"""Every question of every board on a real Prometheus, over a history that real registries wrote."""

import pytest
from heterotp_dashboards.alerts import Thresholds, alerting
from heterotp_dashboards.boards import boards
from heterotp_dashboards.rule_files import prometheus_rules
from support.board_history import COMMUNICATION, DATA, FIXED, MATMUL, STEP, UNIT, Story, write
from support.board_queries import Query, Window, ask, board_queries, resolve_variables, variable_options
from support.prometheus_server import PrometheusServer

START, MINUTES = 1_790_000_010, 30
WINDOW = Window(START, START + 60 * MINUTES)
EASED = Story("team-a", "vit", slow_rank=5, chi=4.0, slow_from=8, balanced_from=16)
LOST = Story("team-a", "lost", ranks=4, slow_rank=1, chi=2.5, balanced_from=None, restarted_at=None, injected=False)
BOARDS = {board["uid"]: board for board in boards()}
CHOSEN = {"heterotp-straggler": {"heterotpjob": "vit"}}
HEALTHY = {"Alert"}  # alerts are not evaluated here


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    directory = tmp_path_factory.mktemp("prometheus")
    with (directory / "history.om").open("w") as file:
        write(file, [EASED, LOST], START, MINUTES)
    server = PrometheusServer(directory)
    server.load(directory / "history.om")
    server.record(prometheus_rules(Thresholds()), START, START + 60 * MINUTES, STEP)
    server.start()
    yield server.url
    server.stop()


def questions(uid, url, **chosen):
    values = resolve_variables(BOARDS[uid], url, WINDOW, **{**CHOSEN.get(uid, {}), **chosen})
    return list(board_queries(BOARDS[uid], values, WINDOW))


def panel(uid, title, url, ref="A", **chosen):
    """Return what a panel's query answers."""
    (query,) = (q for q in questions(uid, url, **chosen) if (q.asker, q.ref) == (title, ref))
    return ask(query, url, WINDOW)


def now(series):
    return float(series["value"][1])


def alert(name, url):
    (expr,) = (
        rule.expr for group in alerting(Thresholds(), "heterotp-operator") for rule in group.rules if rule.name == name
    )
    return ask(Query(name, 0, "alert", "A", expr, "", True), url, WINDOW)


@pytest.mark.parametrize("uid", BOARDS)
def test_every_question_has_an_answer(uid, url):
    empty = {query.asker for query in questions(uid, url) if not ask(query, url, WINDOW)}
    assert empty == HEALTHY


def test_the_table_of_ranks_names_the_cause_that_holds_most_and_only_of_slow_ranks(url):
    (row,) = panel("heterotp-straggler", "Ranks", url, ref="C")
    assert (row["metric"]["rank"], row["metric"]["cause"]) == ("5", "cpuLimit")
    assert now(row) == pytest.approx(0.6)


@pytest.mark.parametrize("uid", BOARDS)
def test_every_variable_has_values(uid, url):
    values = resolve_variables(BOARDS[uid], url, WINDOW, **CHOSEN.get(uid, {}))
    for variable in BOARDS[uid]["templating"]["list"]:
        if variable["type"] == "query" and variable["name"] != "cluster":
            assert variable_options(variable, url, WINDOW, values), variable["name"]


def test_the_slow_rank_is_named_with_its_slowdown(url):
    (slowest,) = panel("heterotp-straggler", "Slowest rank", url)
    assert (slowest["metric"]["rank"], slowest["metric"]["node"]) == ("5", "node-2")
    assert now(slowest) == pytest.approx(EASED.chi, rel=0.1)
    assert now(panel("heterotp-straggler", "Slowed on purpose", url)[0]) == EASED.chi


def test_what_balancing_dealt_with_is_no_imbalance_and_no_alert(url):
    assert now(panel("heterotp-straggler", "Imbalance", url)[0]) < 1.05
    assert now(panel("heterotp-straggler", "Imbalance", url, heterotpjob="lost")[0]) > 1.2
    assert [found["metric"]["heterotpjob"] for found in alert("HeteroTPJobStragglerUnmitigated", url)] == ["lost"]


def test_a_ranks_time_adds_up_to_all_of_it(url):
    shares = {}
    for part in panel("heterotp-straggler", "Where the time goes, by rank", url):
        shares[part["metric"]["rank"]] = shares.get(part["metric"]["rank"], 0) + now(part)
    assert shares == {str(rank): pytest.approx(1) for rank in range(EASED.ranks)}


def test_what_the_others_lose_is_the_slow_ranks_in_its_stages(url):
    parts = panel("heterotp-straggler", "Lost to a rank per iteration, by stage", url, heterotpjob="lost")
    assert {part["metric"]["rank"] for part in parts} == {str(LOST.slow_rank)}
    assert {part["metric"]["stage"] for part in parts} == {"ffnForward", "ffnBackward"}
    lost = sum(map(now, parts))
    assert lost == pytest.approx((LOST.chi - 1) * MATMUL * LOST.pace, rel=0.1)
    over_time = panel("heterotp-straggler", "Lost to a rank, rank by time", url, heterotpjob="lost")
    shares = {series["metric"]["rank"]: float(series["values"][-1][1]) for series in over_time}
    whole = LOST.pace * (LOST.chi * MATMUL + UNIT + FIXED + DATA + COMMUNICATION)
    assert shares.pop(str(LOST.slow_rank)) == pytest.approx(lost / whole, rel=0.1)
    assert set(shares.values()) == {0.0}


def test_a_ranks_work_is_computed_moved_or_pruned(url):
    parts = (panel("heterotp-straggler", "Work of ranks, now", url, ref) for ref in "ABC")
    slow = [now(row) for part in parts for row in part if row["metric"]["rank"] == str(EASED.slow_rank)]
    assert slow == [pytest.approx(each, abs=0.01) for each in (0.25, 0.55, 0.2)]


def test_what_goes_out_comes_in_and_work_is_conserved_but_for_what_is_pruned(url):
    out, into = (sum(map(now, panel("heterotp-straggler", "Ranks", url, ref))) for ref in "JK")
    assert out == into == 770
    assert sum(map(now, panel("heterotp-straggler", "Ranks", url, "I"))) == pytest.approx(EASED.ranks - 0.2)


def test_the_worst_job_comes_first(url):
    worst = panel("heterotp-fleet", "Worst jobs", url, top="1")
    assert [found["metric"]["heterotpjob"] for found in worst] == ["lost"]
    assert {found["metric"]["heterotpjob"] for found in panel("heterotp-fleet", "Worst jobs", url, "B", top="1")} == {
        "lost"
    }


def test_lost_hours_of_the_fleet_are_those_of_its_jobs(url):
    fleet = now(panel("heterotp-fleet", "Rank-hours lost to waiting, by namespace", url)[0])
    jobs = [
        now(panel("heterotp-straggler", "Rank-hours lost to waiting", url, heterotpjob=j)[0]) for j in ("vit", "lost")
    ]
    assert fleet == pytest.approx(sum(jobs), rel=0.1)


def moments(name, url):
    """Return the minutes at which an annotation is seen."""
    (query,) = (q for q in questions("heterotp-straggler", url) if q.asker == name)
    return sorted({(when - START) / 60 for series in ask(query, url, WINDOW) for when, _ in series["values"]})


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("Policy change", 16, 17), ("Re-shard", 16, 17), ("Restart", 4, 5), ("Injection", 8, 30)],
)
def test_marks_are_where_things_happened(name, first, last, url):
    seen = moments(name, url)
    assert first <= seen[0] < first + 1 and last - 1 <= seen[-1] <= last
