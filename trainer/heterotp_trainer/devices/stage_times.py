"""What a rank's own clock says of one iteration by stage, before the ranks are compared."""

from dataclasses import dataclass

from heterotp_api.stages import OWN_STAGES, Stage

EMBEDDING: Stage = "embedding"  # from the batch to the first sharded layer, and the vocabulary's layers
OTHER: Stage = "other"  # after a sharded layer's sum: norms, residuals, loss
FORWARD: dict[str, Stage] = {"heads": "attentionForward", "ffn": "ffnForward", "vocab": EMBEDDING}
BACKWARD: dict[str, Stage] = {"heads": "attentionBackward", "ffn": "ffnBackward", "vocab": EMBEDDING}
NOWHERE = ""  # of waits and migrations, which are no stage
OF_PHASE: dict[str, str] = {
    "data": "data",
    "control": "control",
    "update": "optimizer",
    "wait": NOWHERE,
    "migrate": NOWHERE,
}


@dataclass(frozen=True)
class StageTimes:
    """One iteration of a rank: its own seconds by stage (as OWN_STAGES), waits left out.

    arrived, completed: means over the collectives that it waits for at once, of when it arrived and when the collective
    was complete, in seconds of its clock; meetings: how many these are; 0: not measured (CUDA).
    """

    own: tuple[float, ...] = (0.0,) * len(OWN_STAGES)
    arrived: float = 0.0
    completed: float = 0.0
    meetings: int = 0
