"""How a session ends: by `finish`, by a failure, by force, or with a script that forgot `finish`."""

import atexit
import os
import sys
from collections.abc import Callable

from heterotp_api.names import EXIT_BAD_INPUT, EXIT_STOPPED

from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.devices.machine.watch import MachineWatch
from heterotp_trainer.errors import InputError
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.session_parts.telemetry import Telemetry
from heterotp_trainer.watched import Watched

UNFINISHED = "the script returned without session.finish(): the last checkpoint and the report are missing"


class Ending:
    """Ends the threads of a session, and a process that has no session.finish()."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        control: ControlChannel,
        telemetry: Telemetry,
        machine: MachineWatch,
        reporter: Callable[[], NullReporter],
    ) -> None:
        """reporter: returns that of now."""
        self._heartbeat, self._control, self._telemetry, self._reporter = heartbeat, control, telemetry, reporter
        self._machine = machine
        self._process = os.getpid()
        self._expected = False  # whether the process may end, see `expect`

    def begin(self) -> None:
        """Start heartbeats and the watch of the machine; from now on a process that ends without `finish` fails."""
        self._heartbeat.follow_signals()
        self._heartbeat.start()
        self._machine.start()
        atexit.register(self._end_unfinished)

    def expect(self) -> None:
        """Let the process end from now on: `finish` is through, or a failure is shown."""
        self._expected = True
        atexit.unregister(self._end_unfinished)

    def fail(self, message: str, *, stopped: bool) -> None:
        """Show a failure, see Session.fail."""
        self.expect()
        self._heartbeat.give_way()  # a peer that ends by force looks lost to the training loop
        self._reporter().failed(message, stopped=stopped)
        self.stop_threads()

    def at_once(self, message: str, code: int) -> None:
        """End this process at once: its training loop hangs in another thread, or is over."""
        print(f"error: {message}", file=sys.stderr, flush=True)
        try:
            self.fail(message, stopped=code == EXIT_STOPPED)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def give_up(self) -> None:
        """End what a session does beside training without waiting for other ranks: new parts follow."""
        self._heartbeat.abandon()
        atexit.unregister(self._end_unfinished)
        self._reporter().given_up()
        self._control.stop()
        self._telemetry.stop()
        self._machine.stop()

    def stop_threads(self) -> None:
        """Stop heartbeats, the watches of control documents and of the machine, and the status server."""
        self._heartbeat.stop()
        self._control.stop()
        self._telemetry.stop()
        self._machine.stop()

    def _end_unfinished(self) -> None:
        """When Python ends: end with exit code 2 where the script forgot `finish`.

        Not in a forked child, nor after an error, which has its own exit code; last_value: Python's uncaught one.
        """
        forked, error = os.getpid() != self._process, getattr(sys, "last_value", None)
        if not self._expected and not forked and error is None:
            self.at_once(UNFINISHED, EXIT_BAD_INPUT)


def check_trained(watched: Watched, iteration: int, continued: int) -> None:
    """Raise InputError where this attempt made updates, or had some to make, and ended no iteration.

    iteration: the last one; continued: the one that the attempt continues from.
    """
    nothing_to_do = bool(continued) or watched.iterations == 0
    if iteration == continued and (watched.stepped or not nothing_to_do):
        raise InputError("session.finish: no iteration has ended: call session.boundary(iteration) after each one")
