"""What holds of ranks that really train: checkpoints are whole and never go back, losses are an undisturbed run's."""

from collections import defaultdict

from chaos.timeline import of

LOSS_TOLERANCE = 1e-5  # relative: sums in another order make 2e-7, an update that is lost 3e-4
UNDISTURBED = "undisturbed"  # the name of the job that is compared with


def checkpoints_go_on(history):
    """The step of the published checkpoint of a job never goes back."""
    newest = defaultdict(int)
    for record in of(history, "checkpoint"):
        if record["step"] < newest[record["job"]]:
            yield record["at"], f"job {record['job']}: checkpoint {record['step']} follows {newest[record['job']]}"
        newest[record["job"]] = max(newest[record["job"]], record["step"])


def directories_go_on(history):
    """The newest checkpoint in a job's directory never goes back, and every one that is visible is whole."""
    newest = defaultdict(int)
    for record in of(history, "published"):
        job, found = record["job"], max((step for step, _ in record["steps"]), default=0)
        for why in record["broken"]:
            yield record["at"], f"job {job}: a published checkpoint is broken: {why}"
        if found < newest[job]:
            yield record["at"], f"job {job}: the newest checkpoint in the directory is {found} after {newest[job]}"
        newest[job] = max(newest[job], found)


def attempts_begin_at_the_newest(history):
    """An attempt begins from the newest checkpoint that earlier attempts have published."""
    published = defaultdict(set)
    for record in history:
        if record["what"] == "published":
            published[record["job"]] |= {tuple(each) for each in record["steps"]}
        elif record["what"] == "checkpoint" and "attempt" in record:
            earlier = [step for step, attempt in published[record["job"]] if attempt < record["attempt"]]
            if earlier and record["step"] < max(earlier):
                where = f"job {record['job']}: attempt {record['attempt']} begins from {record['step']}"
                yield record["at"], f"{where}, and {max(earlier)} was published"


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


INVARIANTS = {
    "checkpoints never go back": checkpoints_go_on,
    "directories never go back": directories_go_on,
    "attempts begin at the newest checkpoint": attempts_begin_at_the_newest,
    "losses equal an undisturbed run's": losses_are_equal,
}
