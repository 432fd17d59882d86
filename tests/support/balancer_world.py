"""One rank's balancer in a gang of three that is not there, for tests that go from boundary to boundary."""

import torch
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig, Zero
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PHASES, NullClock
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, Link
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing import balancer as balancers
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.training.optimizer import EagerAdamW

RANKS, WIDTH, UNITS, ROWS = 3, 8, 48, 5
LINK = Link(Line(0.0, 2e-4), Line(0.0, 3e-4), Line(1e-2, 4e-4))
NOTHING = BalancingSettings(strategy="None", window=1)


def pruning(ratio=0.5, window=1, **zero):
    return BalancingSettings(strategy="ZERO", window=window, zero=Zero(fixed_ratio=ratio, ranks=[0], grain=1, **zero))


def migrating(ratio=0.5, window=1):
    return BalancingSettings(strategy="MIG", window=window, mig=Mig(fixed_ratio=ratio, ranks=[0], grain=1))


class World:
    """One rank of three, the first by default: its balancer, its calibrated costs, and the reports that a test sets."""

    def __init__(self, monkeypatch, workdir=None, rank=0):
        tp = TPContext(
            None, rank, RANKS, Device(torch.device("cpu"), "cpu"), NullClock(), UnitPlan.even(RANKS, RANKS, UNITS)
        )
        self.model = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=1)
        self.balancer = Balancer(self.model, tp, workdir)
        self.optimizer = EagerAdamW(self.model.parameters(), lr=0.1)
        self.iteration = 0
        self.calibrations = []
        monkeypatch.setattr(balancers, "calibrate_costs", self._calibrate)
        # the other ranks would only receive which columns of rank 0 migrate
        monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src, group: None)

    def _calibrate(self, tp, classes):
        self.calibrations.append((tp, classes))
        curves = tuple(Curve((0.0, float(each.columns[0])), (0.0, 0.5)) for each in classes)
        return Costs(classes, (curves,) * RANKS, (1,) * RANKS, LINK)

    def train(self):
        """Leave behind what an iteration leaves at the layers."""
        self.iteration += 1
        for linear in (self.model.fc1, self.model.fc2):
            linear.rows, linear.calls = ROWS, 1

    def boundary(self, seconds=None, *, decision_id=None, measured=1, epoch=0):
        """Do an iteration and its boundary, at which reports arrive of one that took so long; None: no reports."""
        self.train()
        reports = None
        if seconds is not None:
            decision_id = self.balancer.plan.decision_id if decision_id is None else decision_id
            spent = dict.fromkeys(PHASES, 0.0) | {"matmul": 0.5, "wait": seconds - 0.5}
            fields = {"measured": measured, "decision_id": decision_id, "full": 1.0, "seconds": spent}
            reports = [Report(self.iteration - 1, **fields)] * RANKS
        return self.balancer.boundary(reports, self.iteration, epoch)

    def follow(self, policy):
        """Take a policy, and do the boundary at which it leads to a plan; return the plan's number."""
        self.balancer.apply(policy)
        self.boundary()
        return self.balancer.plan.decision_id
