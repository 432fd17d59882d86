"""Row Machines: what cadvisor and dcgm-exporter know of the job's pods, where they are scraped."""

from heterotp_dashboards import panels
from heterotp_dashboards.panels import About, Ask, Line, Panel
from heterotp_dashboards.queries import ONE_JOB, rate, series

PLACE = 'cluster=~"$cluster",namespace="$namespace"'
CONTAINERS = 'container!=""'  # not the pod's own cgroup, which would count twice
POD_LEGEND = "{{pod}} · {{node}}"
GPU_LEGEND = "{{pod}} GPU {{gpu}} · {{node}}"


def of_pods(expr: str) -> str:
    """Return what is of the job's pods, with their nodes."""
    pods = f"group by (pod, node) ({series('heterotp_iterations_total', ONE_JOB)})"
    return f"{expr}\n* on (pod) group_left (node) {pods}"


def machines() -> list[Line]:
    """Return what may be the cause: a throttled container, a full memory, a hot GPU."""
    return [
        (8, [(8, throttling()), (8, memory()), (8, network())]),
        (8, [(6, gpu_use()), (6, gpu_clock()), (6, gpu_power()), (6, gpu_temperature())]),
    ]


def throttling() -> Panel:
    """Return how often containers run into their CPU limit."""
    about = About(
        "CPU throttling, by pod",
        "Share of scheduling periods in which the container was stopped at its CPU limit. Good: 0; a throttled rank is "
        "a slow rank.",
        "percentunit",
    )
    throttled, periods = (
        f"sum by (pod) ({rate(f'container_cpu_cfs_{name}_total', PLACE, CONTAINERS)})"
        for name in ("throttled_periods", "periods")
    )
    return panels.lines(about, Ask(of_pods(f"{throttled}\n/ {periods}"), POD_LEGEND)).min(0)


def memory() -> Panel:
    """Return the memory in use."""
    about = About(
        "Memory, by pod",
        "Working set of each pod. Good: steady, and below the limit: at the limit it is killed.",
        "bytes",
    )
    used = f"sum by (pod) ({series('container_memory_working_set_bytes', PLACE, CONTAINERS)})"
    return panels.lines(about, Ask(of_pods(used), POD_LEGEND)).min(0)


def network() -> Panel:
    """Return the network's traffic."""
    about = About(
        "Network, by pod",
        "Bytes per second received (above the axis) and sent (below). Good: alike among the ranks.",
        "Bps",
    )
    asks = [
        Ask(of_pods(f"sum by (pod) ({rate(f'container_network_{way}_bytes_total', PLACE)})"), f"{word} {POD_LEGEND}")
        for way, word in (("receive", "in:"), ("transmit", "out:"))
    ]
    return panels.lines(about, *asks).override_by_query("B", [panels.setting("custom.transform", "negative-Y")])


def gpu(metric: str, factor: str = "") -> Ask:
    """Return a gauge of each GPU; the exporter must keep its own labels (honorLabels)."""
    return Ask(of_pods(f"max by (pod, gpu) ({series(metric, PLACE)}){factor}"), GPU_LEGEND)


def gpu_use() -> Panel:
    """Return how busy GPUs are."""
    about = About(
        "GPU use", "Share of time in which kernels run. Good: high and alike; waiting in NCCL counts as use.", "percent"
    )
    return panels.lines(about, gpu("DCGM_FI_DEV_GPU_UTIL")).min(0).max(100)


def gpu_clock() -> Panel:
    """Return the clock of the multiprocessors."""
    about = About(
        "GPU clock", "Clock of the multiprocessors. Good: alike on like GPUs; one that clocks lower is slow.", "hertz"
    )
    return panels.lines(about, gpu("DCGM_FI_DEV_SM_CLOCK", " * 1e6")).min(0)


def gpu_power() -> Panel:
    """Return the power drawn."""
    about = About(
        "GPU power", "Power drawn. Good: alike on like GPUs, and below the limit at which clocks go down.", "watt"
    )
    return panels.lines(about, gpu("DCGM_FI_DEV_POWER_USAGE")).min(0)


def gpu_temperature() -> Panel:
    """Return the temperature."""
    about = About(
        "GPU temperature", "Temperature of the chip. Good: below 80 °C; near 90 °C clocks go down.", "celsius"
    )
    return panels.lines(about, gpu("DCGM_FI_DEV_GPU_TEMP"))
