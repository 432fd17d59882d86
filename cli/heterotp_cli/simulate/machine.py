"""From a manifest to ranks that can be simulated: emulated devices by what they declare, others by an earlier run."""

from pathlib import Path
from typing import Any

from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.ranks import rank_table
from heterotp_trainer.balancing.simulation import Machine
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, UnitPlan

from heterotp_cli.errors import BadInput
from heterotp_cli.simulate.declared import declared_machine
from heterotp_cli.workdir import read_json

UNITS: dict[Family, str] = {
    "heads": "heads",
    "ffn": "hiddenUnits",
    "vocab": "vocabularyRows",
}  # the fields of status.json that hold what a rank owns


def machine_of(spec: HeteroTPJobSpec, ranks: int | None, run: Path | None) -> Machine:
    """Return the ranks of a job; `ranks`: as many of them instead, in the same proportions; run: directory of a run.

    Raises BadInput naming the field of what is not known.
    """
    if spec.training is None:
        raise BadInput("spec.training: absent: only the built-in trainer's sizes are known here")
    devices = [place.device for place in rank_table(spec)]
    speeds = [place.relative_speed or 1.0 for place in rank_table(spec)]
    if run is not None:
        if ranks is not None:
            raise BadInput(f"--ranks: {ranks}: leave it out with --costs: the ranks of that run are simulated")
        return _measured(run, len(devices))
    if ranks is not None:
        taken = [rank * len(devices) // ranks for rank in range(ranks)]
        devices, speeds = [devices[rank] for rank in taken], [speeds[rank] for rank in taken]
    for rank, device in enumerate(devices):
        if device.type != "emulated":
            words = "its speed is not known here: give --costs RUN_DIR of a run of this job"
            raise BadInput(f"rank {rank}: device.type: '{device.type}': {words}, or an emulated device")
    how = spec.initial_shares
    tera = [float(device.teraflops or 0.0) for device in devices]
    shares = {"even": [1.0] * len(devices), "declared": speeds, "probe": [each / max(tera) for each in tera]}[how]
    return declared_machine(spec.training, devices, shares)


# -- a run's own figures ------------------------------------------------------------------------------------


def _measured(run: Path, expected: int) -> Machine:
    """Return the ranks of a run, from its cost calibration and its last status; expected: ranks of the manifest."""
    calibration, status = read_json(run / "cost_calibration.json"), read_json(run / "status.json")
    if calibration is None or status is None or not status.get("ranks"):
        raise BadInput(
            f"--costs: {run}: no run directory with cost_calibration.json and status.json: train with a policy first"
        )
    try:
        found = machine_of_run(calibration, status)
    except (KeyError, TypeError) as error:
        raise BadInput(
            f"--costs: {run}: cost_calibration.json is of another version: no {error}: train again"
        ) from None
    if found.costs.ranks != expected:
        raise BadInput(f"--costs: {run}: a run of {found.costs.ranks} ranks; the manifest has {expected}")
    return found


def machine_of_run(calibration: dict[str, Any], status: dict[str, Any]) -> Machine:
    """Return the ranks of a run by what its cost_calibration.json and its status.json hold."""
    costs, ranks = _costs(calibration), status["ranks"]
    counts = {family: _units(costs, family, [_owned(rank, family) for rank in ranks]) for family in FAMILIES}

    def every(name: str) -> list[float]:
        return [float(rank[name] or 0.0) for rank in ranks]

    fixed, unit, wait = every("fixedSeconds"), every("unitSeconds"), every("waitSeconds")
    unit_plan = UnitPlan.from_counts(counts["heads"], counts["ffn"], counts["vocab"])
    return Machine(costs, unit_plan, max(fixed), (0.0, sum(unit) / len(unit), 0.0), min(wait))


def _owned(rank: dict[str, Any], family: Family) -> int:
    """Return a rank's units by its entry of status.json; runs of earlier versions have no vocabulary."""
    owned: int = rank.get(UNITS[family], 0) if family == "vocab" else rank[UNITS[family]]
    return owned


def _units(costs: Costs, family: Family, last: list[int]) -> list[int]:
    """Return what each rank owned when the costs were measured; last: in the end, for a family without products."""
    linears = next((each for each in costs.classes if each.family == family), None)
    if linears is None:
        return last
    owned = linears.outputs if linears.parallel == "column" else linears.columns
    return [each // linears.per_unit for each in owned]


def _costs(body: dict[str, Any]) -> Costs:
    """Return what asdict(costs) wrote."""
    lines = {name: Line(**value) for name, value in body["link"].items()}
    return Costs(
        tuple(
            LinearClass(**{**each, "columns": tuple(each["columns"]), "outputs": tuple(each["outputs"])})
            for each in body["classes"]
        ),
        tuple(
            tuple(Curve(tuple(c["columns"]), tuple(c["seconds"]), c["outputs"]) for c in each)
            for each in body["curves"]
        ),
        tuple(body["grains"]),
        Link(**lines),
        body["item_bytes"],
        body["allocation"],
        Line(**body["extraction"]),
        UnitMoveCost(**body["unit_move"]),
    )
