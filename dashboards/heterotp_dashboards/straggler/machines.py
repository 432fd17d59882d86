"""Row Machines: metrics of cadvisor and dcgm-exporter about the job's pods, where these exporters are scraped."""

from heterotp_dashboards import panels
from heterotp_dashboards.panels import Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import ONE_JOB, rate, series

PLACE = 'cluster=~"$cluster",namespace="$namespace"'
CONTAINERS = 'container!=""'  # without the cgroup of the pod itself, which would count its containers twice
POD_LEGEND = "{{pod}} · {{node}}"
GPU_LEGEND = "{{pod}} GPU {{gpu}} · {{node}}"


def of_pods(expr: str) -> str:
    """Return the expression limited to the job's pods, with the label `node`."""
    pods = f"group by (pod, node) ({series('heterotp_iterations_total', ONE_JOB)})"
    return f"{expr}\n* on (pod) group_left (node) {pods}"


def machines() -> list[PanelRow]:
    """Return the panels about possible causes: CPU throttling, memory, network, GPUs."""
    return [
        (8, [(8, throttling()), (8, memory()), (8, network())]),
        (8, [(6, gpu_use()), (6, gpu_clock()), (6, gpu_power()), (6, gpu_temperature())]),
    ]


def throttling() -> Panel:
    """Return the share of periods with CPU throttling."""
    info = PanelInfo(
        "CPU throttling, by pod",
        "Share of scheduling periods in which the container was stopped at its CPU limit. Good: 0; a throttled rank is "
        "slow.",
        "percentunit",
    )
    throttled, periods = (
        f"sum by (pod) ({rate(f'container_cpu_cfs_{name}_total', PLACE, CONTAINERS)})"
        for name in ("throttled_periods", "periods")
    )
    return panels.lines(info, Query(of_pods(f"{throttled}\n/ {periods}"), POD_LEGEND)).min(0)


def memory() -> Panel:
    """Return the memory in use."""
    info = PanelInfo(
        "Memory, by pod",
        "Working set of each pod. Good: steady and below the limit; at the limit the container is killed.",
        "bytes",
    )
    used = f"sum by (pod) ({series('container_memory_working_set_bytes', PLACE, CONTAINERS)})"
    return panels.lines(info, Query(of_pods(used), POD_LEGEND)).min(0)


def network() -> Panel:
    """Return the network traffic."""
    info = PanelInfo(
        "Network, by pod",
        "Bytes per second received (above the axis) and sent (below). Good: similar on all ranks.",
        "Bps",
    )
    targets = [
        Query(of_pods(f"sum by (pod) ({rate(f'container_network_{way}_bytes_total', PLACE)})"), f"{word} {POD_LEGEND}")
        for way, word in (("receive", "in:"), ("transmit", "out:"))
    ]
    return panels.lines(info, *targets).override_by_query("B", [panels.setting("custom.transform", "negative-Y")])


def gpu(metric: str, factor: str = "") -> Query:
    """Return a gauge of each GPU; the exporter must keep its own labels (honorLabels)."""
    return Query(of_pods(f"max by (pod, gpu) ({series(metric, PLACE)}){factor}"), GPU_LEGEND)


def gpu_use() -> Panel:
    """Return the utilization of GPUs."""
    info = PanelInfo(
        "GPU use",
        "Share of time in which kernels run. Good: high and similar; waiting in NCCL counts as use.",
        "percent",
    )
    return panels.lines(info, gpu("DCGM_FI_DEV_GPU_UTIL")).min(0).max(100)


def gpu_clock() -> Panel:
    """Return the clock of the multiprocessors."""
    info = PanelInfo(
        "GPU clock",
        "Clock of the multiprocessors. Good: equal on equal GPUs; a lower clock makes a rank slow.",
        "hertz",
    )
    return panels.lines(info, gpu("DCGM_FI_DEV_SM_CLOCK", " * 1e6")).min(0)


def gpu_power() -> Panel:
    """Return the power draw."""
    info = PanelInfo(
        "GPU power", "Power draw. Good: equal on equal GPUs, and below the limit at which the clock is reduced.", "watt"
    )
    return panels.lines(info, gpu("DCGM_FI_DEV_POWER_USAGE")).min(0)


def gpu_temperature() -> Panel:
    """Return the GPU temperature."""
    info = PanelInfo(
        "GPU temperature", "Temperature of the chip. Good: below 80 °C; near 90 °C the clock is reduced.", "celsius"
    )
    return panels.lines(info, gpu("DCGM_FI_DEV_GPU_TEMP"))
