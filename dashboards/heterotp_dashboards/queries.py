"""PromQL as named functions, shared by panels, recording rules and alerts.

T = matmul + unit + fixed: computing time of a rank in an iteration. M = matmul: its prunable matrix products.
Sums keep the label `cluster`, which is absent where a Prometheus serves one cluster.
"""

from dataclasses import dataclass

JOB = "cluster, namespace, heterotpjob"
RANK = f"{JOB}, rank, node"
COMPUTE = "matmul|unit|fixed"

# series recorded by rules.py; level:metric:operations
BUSY = "namespace_heterotpjob_rank:heterotp_busy_seconds:mean5m"
MATMUL = "namespace_heterotpjob_rank:heterotp_matmul_seconds:mean5m"
WAIT = "namespace_heterotpjob_rank:heterotp_wait_seconds:mean5m"
SLOWDOWN = "namespace_heterotpjob_rank:heterotp_slowdown:ratio"
SLOWDOWN_MAX = "namespace_heterotpjob:heterotp_slowdown:max"
IMBALANCE = "namespace_heterotpjob:heterotp_imbalance:ratio"
WAIT_SHARE = "namespace_heterotpjob:heterotp_wait_per_phase_seconds:ratio_rate5m"
PHASE_NOW = "namespace_heterotpjob_phase:heterotp_operator_job_status_phase:max"
WAIT_RATE = "namespace:heterotp_wait_seconds:sum_rate5m"

# selectors of the boards
ONE_JOB = 'cluster=~"$cluster",namespace="$namespace",heterotpjob="$heterotpjob"'
SOME_RANKS = f'{ONE_JOB},rank=~"$rank"'
NAMESPACES = 'cluster=~"$cluster",namespace=~"$namespace"'
OPERATOR = 'cluster=~"$cluster",job=~"$job"'
RATE_WINDOW = "$__rate_interval"
MOST_RANKS = 16  # in a panel with a row per rank: more of them cannot be read
RANK_NODE = "rank_node"  # rank and node joined, for panels that name rows by one field


def series(metric: str, *matchers: str) -> str:
    """Return a selector without the empty matchers."""
    inside = ",".join(filter(None, matchers))
    return f"{metric}{{{inside}}}" if inside else metric


def rate(metric: str, *matchers: str, window: str = RATE_WINDOW) -> str:
    """Return a counter's increase per second."""
    return f"rate({series(metric, *matchers)}[{window}])"


def increase_in_range(metric: str, *matchers: str) -> str:
    """Return a counter's increase over the whole time range of the board."""
    return f"increase({series(metric, *matchers)}[$__range])"


def quantile(q: float, buckets: str, *matchers: str, by: str = "", window: str = RATE_WINDOW) -> str:
    """Return a quantile of a classic histogram."""
    kept = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({kept}) ({rate(buckets, *matchers, window=window)}))"


def phase(names: str) -> str:
    """Return a matcher of phases, separated by `|`."""
    return f'phase{"=~" if "|" in names else "="}"{names}"'


def first_ranks(expr: str, largest: str = "", smallest: str = "") -> str:
    """Return the expression for the MOST_RANKS ranks with the largest or the smallest value of another expression."""
    chosen = f"topk({MOST_RANKS}, {largest})" if largest else f"bottomk({MOST_RANKS}, {smallest})"
    return f"({expr})\nand on (rank, node) {chosen}"


def likeliest_cause() -> str:
    """Return per rank the share of time of the cause that holds most, which is its label `cause`."""
    return f"topk by (rank) (1, max by (rank, cause) ({series('heterotp_slow_cause', SOME_RANKS)}))"


@dataclass(frozen=True)
class Ranks:
    """Queries per rank and iteration. by: the labels that identify a rank."""

    selector: str = ONE_JOB
    window: str = RATE_WINDOW
    by: str = "rank, node"

    def total(self, metric: str, *matchers: str) -> str:
        """Return each rank's rate of a counter."""
        return f"sum by ({self.by}) ({rate(metric, self.selector, *matchers, window=self.window)})"

    def iterations(self) -> str:
        """Return iterations per second; a rank without iterations has no value, which avoids division by zero."""
        return f"({self.total('heterotp_iterations_total')} > 0)"

    def present(self, expr: str) -> str:
        """Return the expression for ranks that are scraped now, without pods of before a restart in the window."""
        return f"({expr})\nand on ({self.by}) heterotp_iterations_total"

    def seconds(self, phases: str) -> str:
        """Return seconds per iteration in the phases."""
        return f"{self.total('heterotp_phase_seconds_total', phase(phases))}\n/ {self.iterations()}"

    def lost(self) -> str:
        """Return the seconds per iteration that the other ranks wait for each rank."""
        return f"{self.total('heterotp_blamed_seconds_total')}\n/ {self.iterations()}"

    def busy(self) -> str:
        """Return T, seconds per iteration."""
        return self.seconds(COMPUTE)

    def work(self) -> str:
        """Return work per iteration; 1 is the initial share of the rank."""
        return f"{self.total('heterotp_work_units_total')}\n/ {self.iterations()}"


def slowdown() -> str:
    """Return chi of each rank, as the ranks compute it: the one number that status and decisions show, too."""
    return f"max by ({RANK}) (heterotp_slowdown_ratio)"


def imbalance() -> str:
    """Return T of the slowest rank over the mean T."""
    return f"max by ({JOB}) ({BUSY})\n/ avg by ({JOB}) ({BUSY})"


def phase_shares(selector: str) -> str:
    """Return the share of each phase in the time of the ranks that wait least, 0 to 1."""
    spent = rate("heterotp_phase_seconds_total", selector)
    share = f"sum by (rank, node, phase) ({spent})\n/ on (rank, node) group_left () sum by (rank, node) ({spent})"
    return first_ranks(share, smallest=Ranks(selector).seconds("wait"))


def lost_by_stage(selector: str) -> str:
    """Return the seconds per iteration that the other ranks wait for each rank in each stage, where they do."""
    lost = f"sum by (rank, node, stage) ({rate('heterotp_blamed_seconds_total', selector)})"
    per_iteration = f"({lost}\n/ on (rank, node) group_left () {Ranks(selector).iterations()}) > 0"
    return first_ranks(per_iteration, largest=Ranks(selector).lost())


def lost_share(selector: str) -> str:
    """Return the part of its time for which the other ranks wait for a rank, 0 to 1: those that lost most."""
    metric = "heterotp_blamed_seconds_total"
    lost = f"sum by (rank, node) ({rate(metric, selector)})"
    share = f"{lost}\n/ (sum by (rank, node) ({rate('heterotp_phase_seconds_total', selector)}) > 0)"
    whole_range = f"sum by (rank, node) (increase({series(metric, selector)}[$__range] @ end()))"
    return first_ranks(share, largest=whole_range)


def slowdown_over_time(selector: str) -> str:
    """Return chi of the ranks that were slowest in the time range of the board."""
    chi = series(SLOWDOWN, selector)
    whole_range = f"max by (rank, node) (max_over_time({chi}[$__range] @ end()))"
    return first_ranks(chi, largest=whole_range)


def wait_share(window: str) -> str:
    """Return the share of waiting in the time of all ranks, 0 to 1."""
    waiting = rate("heterotp_phase_seconds_total", phase("wait"), window=window)
    spent = rate("heterotp_phase_seconds_total", window=window)
    return f"sum by ({JOB}) ({waiting})\n/ (sum by ({JOB}) ({spent}) > 0)"


def in_phase(phases: str) -> str:
    """Return the jobs in one of the phases; two replicas of the operator may report the same job."""
    return f"max by ({JOB}) ({series('heterotp_operator_job_status_phase', phase(phases))} == 1)"


def increased(selected: str, before: str = "") -> str:
    """Return a job's value where it exceeds its earlier value (default: of a minute ago)."""
    return f"max by ({JOB}) ({selected})\n> max by ({JOB}) ({before or f'{selected} offset 1m'})"


def strategies() -> str:
    """Return 1 for the strategy in force."""
    name = "heterotp_policy_strategy"
    return f"max by ({name}) ({series(name, ONE_JOB)}) == 1"


def injections() -> str:
    """Return the requested slow-downs; a rank without an injection has none."""
    return f"max by (rank, node) ({series('heterotp_injected_slowdown_ratio', ONE_JOB)})"


def pruned(by: str = "rank, node") -> str:
    """Return the share of each rank's columns that no rank computes."""
    return f"max by ({by}) ({series('heterotp_pruned_ratio', SOME_RANKS)})"


def moved(by: str = "rank, node") -> str:
    """Return the share of each rank's columns that other ranks compute."""
    return f"max by ({by}) ({series('heterotp_migrated_ratio', SOME_RANKS)})"


def gamma(by: str = "rank, node") -> str:
    """Return the share of each rank's columns that the rank does not compute."""
    return f"{pruned(by)}\n+ {moved(by)}"


def beta(by: str = "rank, node") -> str:
    """Return the part of gamma that other ranks compute; no value where gamma is 0."""
    return f"{moved(by)}\n/ ({gamma(by)} > 0)"


def columns(direction: str, by: str = "rank, node") -> str:
    """Return the migrated columns of each rank; direction: in or out."""
    matcher = f'direction="{direction}"'
    return f"sum by ({by}) ({series('heterotp_migrated_columns', SOME_RANKS, matcher)})"


def named_rank(expr: str) -> str:
    """Return the expression with rank and node joined in one label."""
    return f'label_join({expr}, "{RANK_NODE}", " · ", "rank", "node")'
