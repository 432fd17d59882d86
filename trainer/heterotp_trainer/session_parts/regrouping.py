"""How a session goes on with other ranks: without those that were lost or asked to leave, with those that came back."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import torch.distributed as dist
from heterotp_api.formatting import ranks_listed
from heterotp_api.gang_text import gang_text

from heterotp_trainer.boundary.control_channel import ControlChannel, ControlError
from heterotp_trainer.boundary.exchange import Report, asked_of
from heterotp_trainer.boundary.injector import Injector
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.rendezvous import Gang, NotLetInError, PeerLostError
from heterotp_trainer.membership.errors import AskedToLeaveError, GoneError
from heterotp_trainer.reporting.log_line import log
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.session_parts.admission import Entrance, enter_gang
from heterotp_trainer.session_parts.parts import Member, Parts, make_parts
from heterotp_trainer.session_parts.roster import Roster
from heterotp_trainer.session_parts.stopping import Requests
from heterotp_trainer.session_parts.succession import Regrouped, succeed
from heterotp_trainer.watched import Watched


class Regrouping(ABC):
    """The part of a Session that changes who belongs to its gang (runPolicy.elastic); the session sets all fields."""

    environment: RankEnvironment
    gang: Gang
    device: Device
    clock: Clock
    reporter: NullReporter
    where: Whereabouts
    control: ControlChannel
    last_evaluated: int
    _as_launched: RankEnvironment
    _iteration: int
    _begun: bool
    _stop_requested: bool
    _agreed_stop: bool
    _admitting: bool
    _telemetry_shown: bool
    _watched: Watched | None
    _member: Member
    _parts: Parts
    _injector: Injector
    _entrance: Entrance
    _requests: Requests
    _roster: Roster

    @property
    @abstractmethod
    def watched(self) -> Watched:
        """Model, optimizer and balancer."""

    @abstractmethod
    def _refused(self, error: ControlError) -> None:
        """Show that a control document was refused."""

    @abstractmethod
    def _show(self) -> None:
        """Begin to serve status and metrics."""

    def regroup(self, *, evaluated: int = 0) -> Regrouped:
        """Go on without ranks that were lost, after a call raised GoneError (all survivors; runPolicy.elastic).

        Model, optimizer, buffers and random generators are then those after `Regrouped.iteration`, from which the loop
        continues: an iteration that was interrupted is repeated. evaluated: the last iteration that this rank has
        evaluated. Raises GoneError where further ranks are lost meanwhile: then call it again; PeerLostError where
        only a restart helps.
        """
        if self._watched is None or self._watched.protection is None or self.gang.membership is None:
            raise PeerLostError("a rank was lost before training had begun")
        started, watched = time.perf_counter(), self._watched
        self._parts.ending.give_up()
        with self.where.busy("ranks were lost, the others regroup"):
            try:
                self.gang, self.environment, found = succeed(
                    watched,
                    self.gang,
                    self.environment,
                    evaluated=evaluated,
                    stop=self._agreed_stop,
                    admitting=self._admitting,
                )
            except NotLetInError as error:
                if self._stop_requested:  # it was asked to leave, and has not heard that the others agreed
                    raise AskedToLeaveError(str(error)) from None
                raise
            self._admitting = False
            if self.gang.membership is not None:
                self._roster.lose(found.lost, found.iteration, self.gang.membership.peers.dead)
            self._renew(found.iteration)
        seconds = time.perf_counter() - started
        self.reporter.regrouped(found.iteration, found.lost, watched.losses)
        if self.environment.rank == 0 and not found.lost:
            log(found.iteration, f"no rank came back: the others go on after {seconds:.2f} s")
        elif self.environment.rank == 0:
            lost, left = ranks_listed(found.lost), len(self.environment.members)
            log(
                found.iteration,
                f"{lost} lost: {left} ranks go on after {seconds:.2f} s, from iteration {found.iteration}",
            )
        return found

    def _renew(self, iteration: int) -> None:
        """Make the parts of the session anew, for the ranks of now, after an iteration (all of them)."""
        watched, earlier = self.watched, self._parts
        self._iteration = self.where.iteration = iteration
        self._member = Member(self.environment, self.gang, self.device, self.clock, self.where)
        self._parts = make_parts(self._member, lambda: self.reporter, self._refused, shown=self._telemetry_shown)
        self.control, self._injector = self._parts.control, self._parts.injector
        self._injector.resume(earlier.injector.state())
        self._parts.tracing.go_on(earlier.tracing, iteration)
        self._parts.statistics.started = iteration
        self._parts.checkpoints.keeper.continues()
        self._show()
        self._parts.ending.begin()
        self.clock.switch("fixed")
        self.clock.take()
        watched.stepped = False
        self._requests = Requests()
        self._gang_changed()

    def _gang_changed(self) -> None:
        """Open the door for ranks that come back, and show who is left."""
        guard = self.watched.protection
        if guard is not None:
            self._entrance.open(self.gang, self.environment, unlike=self.watched.unlike)
            gang = self._roster.gang(self.environment.origins, mirrored=bool(guard.mirrors.buddies))
            self.reporter.gang(gang)
            if self.environment.rank == 0 and (text := gang_text(gang)):
                log(self._iteration, text)

    def _let_in(self) -> None:
        """Let in the rank that waits, which came back (all ranks); the state is that after this iteration.

        Raises GoneError where it, or another rank, is lost meanwhile: `regroup` follows.
        """
        started, watched, self._admitting = time.perf_counter(), self.watched, True
        told = {"evaluated": self.last_evaluated, "injections": self._injector.state(), "roster": self._roster.state()}
        with self.where.busy("a rank that came back is let in"):
            found = self._entrance.let_in(watched, self.gang, self.environment, told)
            self._admitting = False
            if found is None:
                return
            self._parts.ending.give_up()
            self.gang, self.environment, origin = found
            self._roster.back(origin)
            self._renew(self._iteration)
        self.reporter.regrouped(self._iteration, (), watched.losses)
        if self.environment.rank == 0:
            seconds = time.perf_counter() - started
            log(self._iteration, f"rank {origin} is back: {self.environment.ranks} ranks go on after {seconds:.2f} s")

    def _come_in(self) -> None:
        """Be let in by the others, and take the state that they hold (the rank that comes back)."""
        earlier = self.gang
        try:
            self.gang, self.environment, handed = enter_gang(self.watched, self._as_launched, earlier.facts[0])
            self._parts.ending.give_up()
            self._begun, self.last_evaluated = True, int(handed.session["evaluated"])
            self.watched.contents.kept.close()
            self._injector.resume(handed.session["injections"])
            self._roster.resume(handed.session["roster"])
            self._roster.back(self._as_launched.rank)
        except GoneError as error:
            raise NotLetInError(f"the others did not let this rank in: {error}") from None
        try:
            self._renew(handed.iteration)
        except GoneError:  # it belongs to the gang by now
            self._regroup_again()
        self.reporter.regrouped(self._iteration, (), self.watched.losses)
        if self.environment.rank == 0:
            origin, ranks = self._as_launched.rank, self.environment.ranks
            log(self._iteration, f"rank {origin} is back: {ranks} ranks go on, which it leads")

    def _regroup_again(self) -> None:
        """Regroup until no rank is lost meanwhile."""
        while True:
            try:
                self.regroup(evaluated=self.last_evaluated)
                return
            except GoneError:
                continue

    @property
    def _is_elastic(self) -> bool:
        return self.gang.membership is not None

    def _hear(self, reports: Sequence[Report]) -> None:
        """Decide on rank 0 what is done about ranks that were asked to stop."""
        elastic = self.environment.spec.run_policy.elastic
        if elastic is not None and self.environment.rank == 0:
            asked = asked_of(reports)
            self._requests.hear(asked, time.monotonic(), self.environment.ranks, elastic.min_ranks)

    def _let_go(self, rank: int) -> None:
        """Go on without a rank that was asked to leave (all ranks): the rank that mirrors it has its units.

        Raises AskedToLeaveError on that rank, GoneError on the others: `regroup` follows.
        """
        origin, membership = self.environment.origins[rank], self.gang.membership
        assert membership is not None
        with self.where.waiting("a rank that was asked to leave"), suppress(GoneError):  # another one may be ahead
            dist.barrier(group=self.gang.control_group)  # all know it before anybody acts on it
        if rank == self.environment.rank:
            self._entrance.close()
            self._parts.ending.give_up()
            raise AskedToLeaveError(f"rank {origin} was asked to leave: the others go on without it")
        membership.peers.let_go(origin, "was asked to leave")
        membership.generation.give_up(f"rank {origin} was asked to leave")
        membership.generation.check()
