"""What is in force in the coming iteration: the control document, the slow-downs and the plan, alike on all ranks."""

from collections.abc import Callable

from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.exchange import GangAction, Report, merge_reports
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.boundary.iteration_report import IterationStatistics
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.session_parts.tracing import Tracing
from heterotp_trainer.watched import Watched


class InForce:
    """Puts in force what the reports of all ranks ask for."""

    def __init__(
        self,
        control: ControlChannel,
        injector: Injector,
        statistics: IterationStatistics,
        reporter: Callable[[], NullReporter],
        tracing: Tracing,
    ) -> None:
        """reporter: returns that of now."""
        self._tracing = tracing
        self._control, self._injector, self._statistics, self._reporter = control, injector, statistics, reporter

    def boundary(self, watched: Watched, previous: tuple[Report, ...] | None, iteration: int, epoch: int) -> GangAction:
        """Put in force what holds from the iteration after `iteration` on; return what all ranks do now (all ranks).

        previous: the reports of the boundary before. Raises MismatchError where they disagree.
        """
        action = self._act_on(watched, previous, iteration) if previous is not None else GangAction()
        self._balance(watched, previous, iteration, epoch)
        return action

    def _act_on(self, watched: Watched, previous: tuple[Report, ...], iteration: int) -> GangAction:
        action = merge_reports(previous, unlike=watched.unlike)
        self._injector.lapsed = action.lease_over
        if action.document_bytes:
            self._apply_document(watched, action.document_bytes, iteration)
        return action

    def _apply_document(self, watched: Watched, length: int, iteration: int) -> None:
        """Receive the announced document of `length` bytes; it holds from the next iteration on (all ranks)."""
        document = self._control.receive(length)
        watched.balancer.apply(document.balancing)
        self._injector.injections = document.injections
        self._tracing.ask(document.trace)
        self._reporter().applied(document, iteration + 1)

    def _balance(self, watched: Watched, previous: tuple[Report, ...] | None, iteration: int, epoch: int) -> None:
        """Set the columns and slow-downs of the coming iteration, the same plan on all ranks."""
        balancer, reporter = watched.balancer, self._reporter()
        seconds = sum(previous[0].seconds.values()) if previous is not None else 0.0
        self._injector.boundary(iteration + 1, epoch, seconds)
        if watched.tp.ranks > 1 and balancer.boundary(previous, iteration, epoch):
            self._statistics.leave_out()
        watched.saved_time.decided(balancer.plan, balancer.costs)
        if balancer.moved is not None:
            reporter.moved(watched.tp.unit_plan, balancer.moved)
        reporter.balanced(balancer.plan, balancer.costs, self._injector.now)
