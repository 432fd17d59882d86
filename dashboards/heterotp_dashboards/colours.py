"""Every colour of the boards and every value at which a colour changes; panels take their colours from here."""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

GREEN, YELLOW, ORANGE, RED, DARK_RED, BLUE, PURPLE = "green", "yellow", "orange", "red", "dark-red", "blue", "purple"
TEXT = "text"  # the theme's own colour of text


def steps(base: str, *above: tuple[float, str]) -> build.ThresholdsConfig:
    """Return thresholds: the colour of low values, then (value, colour from this value on)."""
    made = [dashboard.Threshold(value=None, color=base)]
    made += [dashboard.Threshold(value=value, color=color) for value, color in above]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)


# values
DEFAULT = steps(GREEN)
SLOWDOWN = steps(GREEN, (1.2, YELLOW), (1.5, ORANGE), (2.0, RED))  # chi
IMBALANCE = steps(GREEN, (1.1, YELLOW), (1.2, RED))
LOST_SHARE = steps(GREEN, (0.05, YELLOW), (0.15, ORANGE), (0.3, RED))  # of the time of an iteration
WAIT_SHARE = steps(GREEN, (0.15, YELLOW), (0.3, RED))
RANKS_REPORTING = steps(RED, (1, GREEN))
SECONDS_SINCE_ITERATION = steps(GREEN, (120, YELLOW), (600, RED))
INJECTED = steps(ORANGE)
STRATEGY = steps(BLUE)
GENERATION_SPREAD = steps(GREEN, (1, RED))
REFUSED_DOCUMENTS = steps(GREEN, (0.5, RED))
STRAGGLERS_OF_JOB = steps(YELLOW, (2, RED))
JOBS_IN_PHASE = steps(TEXT)
JOB_RESULTS = steps(RED)
REPLICAS = steps(RED, (1, GREEN))
LEADERS = steps(RED, (1, GREEN), (2, RED))
WAITING_OBJECTS = steps(GREEN, (50, YELLOW), (500, RED))
RESTARTS = steps(ORANGE)

# series by name
RANK_PHASES = {
    "matmul": BLUE,
    "unit": "light-blue",
    "fixed": PURPLE,
    "migrate": ORANGE,
    "data": YELLOW,
    "control": "semi-dark-yellow",
    "wait": DARK_RED,
}
JOB_PHASES = {
    "Pending": YELLOW,
    "Starting": "light-yellow",
    "Running": GREEN,
    "Restarting": ORANGE,
    "Suspended": "gray",
    "Succeeded": BLUE,
    "Failed": RED,
}
HIGHLIGHTED_PHASES = ("Running", "Pending", "Restarting", "Failed")  # of the fleet board, in this order
RESULTS = {"Succeeded": GREEN}
WORK_NOW = {"computed": BLUE, "moved": "light-blue", "pruned": RED}
STAGES = {  # forward lighter than backward
    "data": YELLOW,
    "embedding": "light-green",
    "attentionForward": "light-blue",
    "attentionBackward": BLUE,
    "ffnForward": "light-purple",
    "ffnBackward": PURPLE,
    "optimizer": GREEN,
    "control": "semi-dark-yellow",
    "other": "gray",
    "link": ORANGE,
}
MOST_PRUNED = RED
MEAN = "white"
EXEMPLARS = "rgba(255,0,255,0.7)"
HEATMAP_SCHEME = "Oranges"

# annotations on the time axis, by name
ANNOTATIONS = {
    "Policy change": PURPLE,
    "Injection": ORANGE,
    "Restart": RED,
    "Re-shard": BLUE,
    "Gang restart": ORANGE,
    "Alert": DARK_RED,
}
