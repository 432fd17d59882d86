"""Hand-made iterations of all ranks, for the tests of blame."""

import numpy as np
from heterotp_api.stages import OWN_STAGES, STAGES
from heterotp_trainer.insight.blame import Laps

EVEN = {"attentionForward": 0.1, "attentionBackward": 0.2, "ffnForward": 0.3, "ffnBackward": 0.6, "data": 0.05}


def laps(*ranks, count=5, span=None, work=None, boots=None, arrived=None, completed=None, meetings=0):
    """Return `count` equal iterations; ranks: seconds by stage of each rank (EVEN where a stage is left out).

    work: by stage, each rank's; span: seconds of an iteration, by default what the latest ranks take together.
    """
    e = len(ranks)
    own = np.array([[{**EVEN, **rank}.get(stage, 0.0) for stage in OWN_STAGES] for rank in ranks])
    shares = np.ones((e, len(STAGES)))
    for stage, values in (work or {}).items():
        shares[:, STAGES.index(stage)] = values
    times = [np.zeros((count, e)) if each is None else np.asarray(each, dtype=float) for each in (arrived, completed)]
    return Laps(
        np.repeat(own[None], count, axis=0),
        *times,
        np.full((count, e), meetings),
        np.full(count, own.max(axis=0).sum() + 1.0 if span is None else span),
        shares,
        boots or [""] * e,
    )


def at(stage):
    """Return the column of a stage."""
    return STAGES.index(stage)
