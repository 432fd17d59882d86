"""The reporter that shows nothing: what a session hands to any reporter."""

from collections.abc import Mapping, Sequence

from heterotp_api.control import ControlDocument
from heterotp_api.trainer_status import TrainerGang
from torch import Tensor

from heterotp_trainer.boundary.control_channel import ControlError
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.stall import Stall
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.resharding.resharder import CompletedMove


class NullReporter:
    """Shows nothing: before `Session.watch`, and for sessions without telemetry. `Reporter` overrides all methods.

    A reporter decides nothing, and holds nothing that training or a checkpoint needs.
    """

    def start(self) -> None:
        """Start to write the run directory."""

    def regrouped(self, iteration: int, lost: Sequence[int], losses: Mapping[int, float]) -> None:
        """Show that training goes on after `iteration`, without the ranks that started as `lost`.

        losses: of the last iterations, of which the history may lack those whose reports had not arrived.
        """

    def gang(self, gang: TrainerGang) -> None:
        """Show who is left of a gang that may lose ranks."""

    def given_up(self) -> None:
        """Write no more: another reporter follows in this process."""

    def iteration(
        self,
        own: Report,
        previous: tuple[Report, ...] | None,
        loss: Tensor | None,
        samples: int,
        epoch: int,
        control_error: ControlError | None,
    ) -> None:
        """Show the end of an iteration: this rank's report, and all ranks' reports of the iteration before."""

    def evaluated(
        self, loss: float, accuracy: float | None, epoch: int, perplexity: float | None = None, sample: str = ""
    ) -> None:
        """Show an evaluation on the test set; accuracy 0..1, None where the task has none; sample: generated text."""

    def skipped(self, updates: int) -> None:
        """Show how many updates of the attempt were left out, because loss or gradients were not finite."""

    def stalled(self, stall: Stall | None) -> None:
        """Show that no iteration ends; None: they do. Called from the thread that sends heartbeats."""

    def refused(self, error: ControlError) -> None:
        """Count a control document that was refused; called from the thread that watches the file."""

    def applied(self, document: ControlDocument, iteration: int) -> None:
        """Show the control document that is in force from `iteration` on."""

    def moved(self, plan: UnitPlan, moved: CompletedMove) -> None:
        """Show a move of units, after which `plan` is in force."""

    def balanced(self, plan: WorkPlan, costs: Costs, injecting: Injecting) -> None:
        """Show the plan and the injections of the next iteration."""

    def resumed(self, iteration: int) -> None:
        """Show that a checkpoint of `iteration` was restored."""

    def storing(self, text: str) -> None:
        """Show what takes long in reading or writing a checkpoint."""

    def saved(self, iteration: int, seconds: float) -> None:
        """Show that a checkpoint was written, which took `seconds`."""

    def not_saved(self, message: str) -> None:
        """Show that a checkpoint could not be written, until one is written."""

    def finish(self, last: tuple[Report, ...] | None, state: str) -> None:
        """Show the last reports, write the final report."""

    def failed(self, message: str, *, stopped: bool = False) -> None:
        """Show the failure, or a stop by force, and write the final report; a stall is then in the message."""
