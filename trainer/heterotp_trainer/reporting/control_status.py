"""The status document of a session without telemetry: only what an operator needs for control documents."""

import time

from heterotp_api.trainer_status import TrainerStatus

from heterotp_trainer.boundary.control_channel import ControlChannel


class ControlStatus:
    """State, and the generations and the error of the control documents of one rank."""

    def __init__(self, job: str, attempt: int, control: ControlChannel) -> None:
        self._control = control
        self._started = TrainerStatus(job=job, attempt=attempt, state="starting", started_at=time.time())
        self.running = False  # set at the first boundary

    def document(self) -> TrainerStatus:
        """Return the status document."""
        control, error = self._control, self._control.error
        fields = {
            "state": "running" if self.running else "starting",
            "applied_generation": control.generation,
            "control_generation": control.newest_generation,
            "control_error": str(error or ""),
            "control_error_generation": error.generation if error is not None else None,
        }
        return self._started.model_copy(update=fields)
