"""What a session shows: its reporter, and the status server, which answers the operator also without telemetry."""

from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang
from heterotp_trainer.reporting.control_status import ControlStatus
from heterotp_trainer.reporting.http_server import StatusServer
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.reporting.reporter import Reporter
from heterotp_trainer.watched import Watched


class Telemetry:
    """Makes the reporter and serves what it shows; status: what is served where nothing is shown."""

    def __init__(
        self, environment: RankEnvironment, gang: Gang, heartbeat: Heartbeat, control: ControlChannel, *, shown: bool
    ) -> None:
        """shown: see telemetry of Session."""
        self._environment, self._gang, self._heartbeat, self._control = environment, gang, heartbeat, control
        self._shown = shown
        self.status = ControlStatus(environment.job, environment.attempt, control)
        self._server: StatusServer | None = None

    def reporter(self, watched: Watched) -> NullReporter:
        """Return the reporter of a session that watches a model."""
        if not self._shown:
            return NullReporter()
        return Reporter(
            self._environment,
            self._gang,
            watched.saved_time,
            watched.balancer.policy,
            watched.iterations,
            self._heartbeat.idle_seconds,
        )

    def serve(self, reporter: NullReporter) -> None:
        """Start the status server, where there is a port for it; raises InputError where the port is taken."""
        if self._environment.status_port is None:
            return
        status, metrics = self.status.document, None
        if isinstance(reporter, Reporter):
            status, metrics = reporter.document, reporter.metrics.text
        self._server = StatusServer(self._environment.status_port, status, metrics, self._control.lease.polled)
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None
