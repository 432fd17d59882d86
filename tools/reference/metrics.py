"""The page about the metrics, from the registries that export them."""

from collections.abc import Iterable, Iterator

from heterotp_api.status import PHASES as JOB_PHASES
from heterotp_operator.metrics import Metrics
from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import Enum, Histogram, Info, MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from reference.markdown import code, document, plain, table

SOURCE = "the registries in trainer/heterotp_trainer/reporting/metrics.py and operator/heterotp_operator/metrics.py"
FREE = ("rank", "le", "version", "torch", "backend")  # labels whose values are not a short list
LEVELS = ("basic", "full")
GANG = 64  # ranks of the job in the table of sizes
SCRAPE = 5  # series that Prometheus itself adds for each target: up, scrape_duration_seconds, ...
INTRO = """\
[Monitoring](../monitoring.md) describes how a Prometheus scrapes these metrics, and the boards and alerts. Series with
label values known in advance start at 0, so that `rate()` includes the first step."""
RANKS = """\
Every rank serves them at `/metrics` on port `metrics.port` + its number within the pod. The process sets the label
`rank`; the scrape adds `namespace`, `heterotpjob`, `node` and `pod`. `metrics.level` of the job is `basic` or `full`.

Seconds are counted by `phase`: `matmul` matrix products of the sharded layers (M), `unit` other work on owned units
(U), `fixed` equal work of all ranks (F), `wait` collectives, `data` loading, `migrate` extraction and insertion of
columns by pruning and migration, `control` the rest of a boundary. The computing time of a rank is T = M + U + F; at
level `basic`, which omits `unit`, M + F. Wall time does not distinguish ranks: it is the same on all of them."""
RANK_0 = "Metrics of the whole job, only on the port of rank 0, at both levels."
OPERATOR = """\
The operator serves them on port 8080 (`HETEROTP_METRICS_PORT`). `namespace` is that of the job: a scrape needs
`honorLabels: true`, otherwise Prometheus renames it to `exported_namespace`. Only the leading replica has series of
jobs. There is one series for each combination of labels; a histogram has one per bucket and two more. Series of a
job are deleted with the job; histograms and counters are by namespace, never by job. Names that start with `process`
are about the operator's process."""


def page() -> str:
    """Return the page."""
    levels = [_rank_registry(level) for level in LEVELS]
    job, operator = _job_registry(), _operator_registry()
    return document(
        "Metrics",
        SOURCE,
        INTRO,
        _sizes(_count(levels[0]), _count(levels[1]), _count(job), _count_of_job(operator)),
        f"## Every rank\n\n{RANKS}",
        table(("metric", "type", "labels", *LEVELS, "meaning"), _rank_rows(*levels)),
        f"## Rank 0\n\n{RANK_0}",
        table(("metric", "type", "labels", "series", "meaning"), _job_rows(job)),
        f"## Operator\n\n{OPERATOR}",
        table(("metric", "type", "labels", "meaning"), _operator_rows(operator)),
    )


# -- the registries, after events have occurred ---------------------------------------------------


def _rank_registry(level: str) -> CollectorRegistry:
    metrics = RankMetrics(0, level)
    metrics.balance(Effect())
    metrics.iteration(dict.fromkeys(PHASES, 0.0), 1.0, 0.0)
    return metrics.registry


def _job_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, ranks=GANG, attempt=1, backend="gloo")
    metrics.loss.labels("train")
    metrics.evaluated(0.0, 0.0, 1.0)
    return registry


def _operator_registry() -> CollectorRegistry:
    metrics = Metrics()
    metrics.observe_job(("namespace", "job"), {"tensorParallelDegree": GANG}, {"phase": JOB_PHASES[0]})
    metrics.collect_totals([])
    return metrics.registry


# -- rows ------------------------------------------------------------------------------------------------------


def _rank_rows(basic: CollectorRegistry, full: CollectorRegistry) -> Iterator[tuple[str, ...]]:
    few = {_name(metric): metric for metric in _metrics(basic)}
    for metric in _metrics(full):
        name = _name(metric)
        counts = [str(len(_samples(each))) if each is not None else "-" for each in (few.get(name), metric)]
        labels = _labels(metric)
        if name in few and len(_samples(few[name])) < len(_samples(metric)):
            labels += f"; basic: {_values(few[name], 'phase')}"
        if not _samples(metric):
            counts = ["1 while injected"] * 2
        yield code(name), _type(metric), labels, *counts, _meaning(metric)


def _job_rows(registry: CollectorRegistry) -> Iterator[tuple[str, ...]]:
    for metric in _metrics(registry):
        yield code(_name(metric)), _type(metric), _labels(metric), str(len(_samples(metric))), _meaning(metric)


def _operator_rows(registry: CollectorRegistry) -> Iterator[tuple[str, ...]]:
    for metric in _metrics(registry):
        yield code(_name(metric)), _type(metric), ", ".join(map(code, _label_names(metric))), _meaning(metric)
    for family in _others(registry):
        yield code(_full(family)), family.type, "", plain(family.documentation)


def _sizes(basic: int, full: int, rank_0: int, job: int) -> str:
    """Return the table of the number of series, as counted."""
    return f"""\
## How many series

| | `basic` | `full` |
| --- | --- | --- |
| a rank | {basic} | {full} |
| rank 0 in addition | {rank_0} | {rank_0} |
| a job of {GANG} ranks | {GANG * basic + rank_0:,} | {GANG * full + rank_0:,} |
| ... with the series that Prometheus adds ({SCRAPE} per target) | {GANG * (basic + SCRAPE) + rank_0:,} | \
{GANG * (full + SCRAPE) + rank_0:,} |

A rank with an injection has one more. The operator has {job} for each job."""


# -- properties of a metric ------------------------------------------------------------------------------


def _metrics(registry: CollectorRegistry) -> list[MetricWrapperBase]:
    """Return the metrics of a registry in the order of their creation."""
    return [each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase)]


def _others(registry: CollectorRegistry) -> list[Metric]:
    """Return metrics that collectors of the library create at each scrape, e.g. about the process."""
    own = {family.name for metric in _metrics(registry) for family in metric.describe()}
    return [family for family in registry.collect() if family.name not in own]


def _samples(metric: MetricWrapperBase) -> list[Sample]:
    return [sample for family in metric.collect() for sample in family.samples]


def _count(registry: CollectorRegistry) -> int:
    return sum(len(_samples(metric)) for metric in _metrics(registry))


def _count_of_job(registry: CollectorRegistry) -> int:
    samples: Iterable[Sample] = (sample for metric in _metrics(registry) for sample in _samples(metric))
    return sum("heterotpjob" in sample.labels for sample in samples)


def _name(metric: MetricWrapperBase) -> str:
    (family,) = metric.describe()
    return _full(family)


def _full(family: Metric) -> str:
    """Return the name in the exposition; series of a histogram end in _bucket, _sum and _count."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _type(metric: MetricWrapperBase) -> str:
    if isinstance(metric, Histogram):
        return f"histogram, {len(metric._upper_bounds)} buckets"
    (family,) = metric.describe()
    return {"info": "info: always 1", "stateset": "state set: 0 or 1"}.get(family.type, family.type)


def _label_names(metric: MetricWrapperBase) -> list[str]:
    own = isinstance(metric, Info | Enum)  # which make labels of what they hold
    return sorted({name for sample in _samples(metric) for name in sample.labels}) if own else list(metric._labelnames)


def _labels(metric: MetricWrapperBase) -> str:
    return ", ".join(
        code(name) if name in FREE else f"{code(name)} = {_values(metric, name)}" for name in _label_names(metric)
    )


def _values(metric: MetricWrapperBase, label: str) -> str:
    return ", ".join(dict.fromkeys(sample.labels[label] for sample in _samples(metric)))


def _meaning(metric: MetricWrapperBase) -> str:
    (family,) = metric.describe()
    return plain(family.documentation)
