"""A real Prometheus scrapes a real job while a rank turns slow, gets less work and recovers.

Targets and labels are those of the chart's monitors, rules those of the chart; only their clocks are wound up.
HETEROTP_PICTURES=DIR draws the boards of the run into DIR (tools/picture: needs node, npm and chromium).
"""

import math
import os
import re
import subprocess
import time

import pytest
import yaml
from heterotp_dashboards import queries
from heterotp_dashboards.alerts import Thresholds, alerting
from heterotp_dashboards.boards import boards
from heterotp_dashboards.rule_files import prometheus_rules
from support.board_queries import Query, Window, ask, board_queries, get, resolve_variables
from support.cluster_job import Space
from support.discovery import Discovery
from support.kube import until
from support.monitors import Access, cadvisor, scrape_configs
from support.places import ROOT
from support.prometheus_server import PrometheusServer
from support.rendered_chart import of_kind, render

pytestmark = pytest.mark.e2e
STRAGGLER = ROOT / "examples" / "straggler"
SLOW_RANK, CHI, SYSTEM = 2, 4, "heterotp-system"
WINDOW = 20  # seconds that rules and panels look back, in place of minutes
HASTE = {"[5m]": f"[{WINDOW}s]", "[15m]": f"[{WINDOW}s]", "[30m]": f"[{WINDOW}s]", "interval: 30s": "interval: 1s"}
FAST = Thresholds(straggler_for="3s", straggler_keep_firing_for="1s", pruned_for="3s", operator_absent_for="3s")
LAST = "last_iteration_timestamp_seconds"
BOARDS = {board["uid"]: board for board in boards()}
NO_GPU = {"GPU use", "GPU clock", "GPU power", "GPU temperature"}  # no dcgm-exporter without a GPU
NO_LIMIT = {"CPU throttling, by pod"}  # cadvisor counts periods of containers with a CPU limit
NO_ANSWER = {  # of what did not happen
    "heterotp-straggler": {*NO_GPU, *NO_LIMIT, "Restart"},
    "heterotp-fleet": {"Gang restart", "Finished jobs, by result"},
    "heterotp-operator": {"Gang restart", "Gang restarts, by reason"},
}
STEP = 2  # seconds, of the boards' questions about a range
RANK_SERIES, RANK_0_SERIES = 32, 75  # at most, at metrics.level full


class Prometheus:
    """A Prometheus that scrapes the cluster, and what it is asked."""

    def __init__(self, directory, kubeconfig):
        every = {"interval": "1s", "enabled": True}
        monitors = {"podMonitor": {**every, "ranksPerPod": 1}, "serviceMonitor": every}
        chart = render(values={"monitoring": monitors}, release="heterotp", namespace=SYSTEM)
        access, self.discovery = Access(kubeconfig, directory), Discovery(kubeconfig, directory)
        scraped = scrape_configs(of_kind(chart, "PodMonitor", "ServiceMonitor"), access, self.discovery)
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [*scraped, {**cadvisor(access, self.discovery), "scrape_interval": "5s"}],
        }
        rules = prometheus_rules(FAST)
        for slow, fast in HASTE.items():
            rules = rules.replace(slow, fast)
        (directory / "rules.yml").write_text(rules)
        self.server = PrometheusServer(directory, yaml.safe_dump(configuration))
        self.server.start()
        self.discovery.start()

    def stop(self):
        self.discovery.stop()
        self.server.stop()

    def ask(self, expr, when=None):
        """Return the series that answer at a moment: by default now."""
        return get(self.server.url, "query", query=expr, time=when or time.time())["result"]

    def value(self, expr, when=None):
        """Return the only value, None when there is none."""
        found = self.ask(expr, when)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def firing(self):
        return {found["metric"]["alertname"] for found in self.ask('ALERTS{alertstate="firing"}')}

    def fires(self, alert):
        until(lambda: f"{alert} fires: {self.ask('ALERTS')}", lambda: alert in self.firing(), every=0.3)

    def resolves(self, alert):
        until(lambda: f"{alert} resolves: {self.ask('ALERTS')}", lambda: alert not in self.firing(), every=0.3)


class Story:
    """What happened to the job, and when: unix seconds at the end of each act."""

    def __init__(self, prometheus, space, run):
        self.prometheus, self.space, self.run = prometheus, space, run
        self.started = time.time()
        self.acts: dict[str, float] = {}

    def selected(self, name, *more):
        """Return a selector of one metric of the job."""
        return queries.series(name, f'namespace="{self.space.name}"', 'heterotpjob="straggler"', *more)

    def ended(self, act):
        self.acts[act] = time.time()

    def window(self):
        return Window(self.started, max(self.acts.values()), step=STEP, rate_interval=f"{WINDOW}s")


def example(name):
    return yaml.safe_load((STRAGGLER / f"{name}.yaml").read_text())


@pytest.fixture(scope="module")
def prometheus(kubeconfig, release, tmp_path_factory):
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), kubeconfig)
    up = 'sum(up{job="heterotp-operator"})'
    until("all operators are scraped", lambda: prometheus.value(up) == len(release.pods()), 60, 0.2)
    yield prometheus
    prometheus.stop()


@pytest.fixture(scope="module")
def story(kube, release, prometheus):
    """Play examples/straggler: all is well, rank 2 slow, ZERO, AUTO."""
    space = Space(kube, f"e2e-monitoring-{int(time.time())}")
    try:
        story = play(prometheus, space)
        if directory := os.environ.get("HETEROTP_PICTURES"):
            draw(story, directory)
        yield story
    finally:
        space.remove()


def draw(story, directory):
    """Draw the boards as Grafana's own components do; fails where a panel has no data or crashes."""
    window = story.window()
    span = {"MINUTES": str((window.end - window.start) / 60), "END": str(window.end)}
    span |= {"STEP": str(window.step), "RATE": window.rate_interval}
    for uid in BOARDS:
        board, out = ROOT / "dashboards" / f"{uid}.json", os.path.join(directory, f"{uid}.png")
        chosen = [f"namespace={story.space.name}", "heterotpjob=straggler"] if uid == "heterotp-straggler" else []
        command = [ROOT / "tools" / "picture" / "draw.sh", board, story.prometheus.server.url, out, *chosen]
        subprocess.run(command, check=True, env={**os.environ, **span})


def play(prometheus, space):
    policy = space.put(example("watch"))
    story = Story(prometheus, space, space.apply(example("job")))
    story.run.trained(attempt=1, iteration=1)
    chi = story.selected(queries.SLOWDOWN, f'rank="{SLOW_RANK}"')
    full = story.selected("heterotp_iterations_total", 'rank="0"')
    seen = f"count_over_time({full}[{WINDOW}s])"
    until(lambda: "the windows are full", lambda: (prometheus.value(seen) or 0) >= WINDOW - 2, 90, 0.3)
    assert prometheus.firing() == set()
    story.ended("well")

    space.put(example("injection"))
    until(lambda: prometheus.ask(chi), lambda: abs((prometheus.value(chi) or 0) - CHI) < 0.1 * CHI, 60, 0.3)
    prometheus.fires("HeteroTPJobStragglerUnmitigated")
    story.ended("slow")

    policy.edit(example("policy")["spec"])
    prometheus.fires("HeteroTPJobPruningHigh")
    prometheus.resolves("HeteroTPJobStragglerUnmitigated")
    story.ended("reduced")

    policy.delete()  # AUTO takes over: it moves units, and nothing is pruned any more
    moves = story.selected("heterotp_reshards_total")
    until(lambda: prometheus.ask(moves), lambda: (prometheus.value(moves) or 0) >= 1, 60, 0.3)
    prometheus.resolves("HeteroTPJobPruningHigh")
    # boards show what happened against the minute before, and the example writes a checkpoint once a minute
    late = {queries.increased(moves), f"{story.selected('heterotp_checkpoint_seconds')} > 0"}
    shown = lambda: all(prometheus.ask(each, time.time() - 3 * STEP) for each in late)  # noqa: E731
    until(lambda: f"answers to {late}", shown, 120, 0.3)
    story.ended("moved")
    return story


def asked(story, uid):
    """Yield every question of a board about the whole story."""
    chosen = {"namespace": story.space.name, "heterotpjob": "straggler"} if uid == "heterotp-straggler" else {}
    values = resolve_variables(BOARDS[uid], story.prometheus.server.url, story.window(), **chosen)
    return board_queries(BOARDS[uid], values, story.window())


def answers(story, title, act, ref="A"):
    """Return the values of a panel of the straggler board at the end of an act."""
    (query,) = (q for q in asked(story, "heterotp-straggler") if (q.asker, q.ref) == (title, ref))
    return story.prometheus.ask(query.expr, story.acts[act])


def number(series):
    return float(series["value"][1])


def answered(query, story):
    """Return whether a question has an answer: over the whole story, or at the end of one of its acts."""
    if not query.instant:
        return any(ask(query, story.prometheus.server.url, story.window()))
    values = [number(series) for when in story.acts.values() for series in story.prometheus.ask(query.expr, when)]
    return not all(map(math.isnan, values))


@pytest.mark.parametrize("uid", BOARDS)
def test_every_question_of_every_board_has_an_answer(uid, story):
    assert {query.asker for query in asked(story, uid) if not answered(query, story)} == NO_ANSWER[uid]


def test_every_recording_rule_has_recorded(story):
    groups = yaml.safe_load(prometheus_rules(FAST))["groups"]
    names = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    assert names == {found["metric"]["__name__"] for found in story.prometheus.ask('{__name__=~".+:.+:.+"}')}


def test_every_rule_can_be_evaluated(story):
    groups = get(story.prometheus.server.url, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 20
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}


def test_what_alerts_read_is_there(story):
    """Alerts are silent, so their own answer proves nothing: each metric they name has series, or had some."""
    known = set(get(story.prometheus.server.url, "label/__name__/values"))
    groups = alerting(FAST, "heterotp-operator")
    text = " ".join(rule.expr for group in groups for rule in group.rules)
    named = set(re.findall(r"(?:[a-z_]+:)?heterotp_[a-z_]+(?::[a-z0-9_]+)?", text))
    assert len(named) > 10 and named - known == set()


def test_the_slow_rank_is_named_with_its_node_and_its_slowdown(story):
    (slowest,) = answers(story, "Slowest rank", "slow")
    node = story.run.pods()[SLOW_RANK]["spec"]["nodeName"]
    assert (slowest["metric"]["rank"], slowest["metric"]["node"]) == (str(SLOW_RANK), node)
    assert number(slowest) == pytest.approx(CHI, rel=0.1)
    others = [number(each) for each in answers(story, "Slowest rank", "well")]
    assert max(others) < 1.2


def test_balancing_hides_the_imbalance_and_not_the_slow_rank(story):
    (imbalance,) = answers(story, "Imbalance", "reduced")
    assert number(imbalance) < 1.2 < number(answers(story, "Imbalance", "slow")[0])
    for act, bound in (("reduced", 0.15), ("moved", 0.25)):  # of few units, a rank's speed is known roughly
        (slowest,) = answers(story, "Slowest rank", act)
        assert slowest["metric"]["rank"] == str(SLOW_RANK)
        assert number(slowest) == pytest.approx(CHI, rel=bound)


def test_phases_add_up_to_all_of_a_ranks_time(story):
    """Between two scrapes all phases together rise by the time from iteration's end to iteration's end."""
    spent, took = (rises(story, f"heterotp_{name}") for name in ("phase_seconds_total", LAST))
    assert len(spent) == 4
    assert spent == {rank: pytest.approx(seconds, rel=0.02) for rank, seconds in took.items()}


def rises(story, metric):
    """Return by how much a metric rose from the end of the first act to that of the last, added up by rank."""
    start, end = story.acts["well"], story.acts["moved"]
    risen = {}
    for series in story.prometheus.ask(f"{story.selected(metric)}[{round(end - start)}s]", end):
        values = [float(value) for _, value in series["values"]]
        rank = series["metric"]["rank"]
        risen[rank] = risen.get(rank, 0) + values[-1] - values[0]
    return risen


def test_series_and_size_of_a_scrape_are_within_the_budget(story, measured):
    counted = story.prometheus.ask(story.selected("scrape_samples_scraped"), story.acts["reduced"])
    assert len(counted) == 4
    by_instance = sorted(number(each) for each in counted)
    texts = [story.run.ask(pod["metadata"]["name"], "/metrics") for pod in story.run.pods().values()]
    assert all(texts), "every rank answers"
    measured["series of a rank, of rank 0"] = f"{by_instance[0]:.0f}, {by_instance[-1]:.0f}"
    measured["bytes of a scrape"] = f"{min(map(len, texts))} to {max(map(len, texts))}"
    assert by_instance[-2] <= RANK_SERIES and by_instance[-1] <= RANK_0_SERIES


def test_an_operator_that_is_gone_is_missed_and_one_that_is_back_is_not(story, release):
    replicas = len(release.pods())
    release.scale(0)
    story.prometheus.fires("HeteroTPOperatorAbsent")
    release.scale(replicas)
    story.prometheus.resolves("HeteroTPOperatorAbsent")
    assert "HeteroTPOperatorAbsent" not in story.prometheus.firing()


def test_a_question_without_an_answer_would_be_seen(story):
    missing = Query("none", 0, "stat", "A", "heterotp_no_such_metric", "", True)
    assert ask(missing, story.prometheus.server.url, story.window()) == []
