"""What holds of ranks that really train: checkpoints never go back, and losses are those of an undisturbed run."""

from collections import defaultdict

from chaos.timeline import of

LOSS_TOLERANCE = 1e-4  # relative, as in the tests of balancing on the cluster: sums in another order
UNDISTURBED = "undisturbed"  # the name of the job that is compared with


def checkpoints_go_on(history):
    """The step of the published checkpoint of a job never goes back."""
    newest = defaultdict(int)
    for record in of(history, "checkpoint"):
        if record["step"] < newest[record["job"]]:
            yield record["at"], f"job {record['job']}: checkpoint {record['step']} follows {newest[record['job']]}"
        newest[record["job"]] = max(newest[record["job"]], record["step"])


def losses_are_equal(history):
    """The loss of every iteration is that of the undisturbed run, where both have it."""
    expected = {record["iteration"]: record["loss"] for record in of(history, "loss", job=UNDISTURBED)}
    for record in of(history, "loss"):
        wanted = expected.get(record["iteration"])
        if wanted is None:
            continue
        if not abs(record["loss"] - wanted) <= LOSS_TOLERANCE * abs(wanted):
            where = f"job {record['job']}, attempt {record['attempt']}, iteration {record['iteration']}"
            yield record["at"], f"{where}: loss {record['loss']}, undisturbed {wanted}"


INVARIANTS = {"checkpoints never go back": checkpoints_go_on, "losses equal an undisturbed run's": losses_are_equal}
