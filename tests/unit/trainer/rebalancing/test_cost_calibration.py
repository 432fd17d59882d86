"""What is measured once: lines through points, curves that never fall, and what several ranks make of their costs."""

import pytest
import torch
import torch.distributed as dist
from heterotp_api.job import Device as DeviceSpec
from heterotp_trainer.devices.device import Device, EmulatedDevice
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing import cost_calibration
from heterotp_trainer.rebalancing.cost_calibration import RankCalibration, calibrate_costs, costs_of, fit, rising
from heterotp_trainer.tensor_parallel.context import TPContext
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(0, 10)

# -- lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "seconds", "fixed", "slope"),
    [
        ([1, 2, 4], [3, 5, 9], 1, 2),
        ([0.25, 0.5, 0.75], [1, 2, 3], 0, 4),
        ([0, 1, 2], [0, 2, 1], 0.5, 0.5),
        ([10, 20], [5, 3], 4, 0),
        ([10, 20], [1, 3], 0, 0.2),
        ([7], [3], 3, 0),
        ([7, 7, 7], [1, 2, 6], 3, 0),
        ([1, 2], [0, 0], 0, 0),
    ],
    ids=[
        "on-a-line",
        "shares",
        "least-squares",
        "no-slope-below-0",
        "no-fixed-part-below-0",
        "one-point",
        "equal-amounts",
        "nothing",
    ],
)
def test_the_line_through_points(amounts, seconds, fixed, slope):
    line = fit(amounts, seconds)
    assert (line.fixed, line.slope) == (pytest.approx(fixed), pytest.approx(slope))


@given(st.lists(st.tuples(st.floats(0, 1e6), SECONDS), min_size=1, max_size=6))
def test_no_part_of_a_line_is_negative(points):
    line = fit(*zip(*points, strict=True))
    assert line.fixed >= 0 and line.slope >= 0


# -- curves -----------------------------------------------------------------------------------------------


def test_a_curve_passes_its_points_in_order_and_starts_at_0():
    assert rising({8.0: 0.3, 2.0: 0.1, 4.0: 0.2}) == Curve((0.0, 2.0, 4.0, 8.0), (0.0, 0.1, 0.2, 0.3))


def test_more_columns_never_take_less_time():
    assert rising({2.0: 0.3, 4.0: 0.1, 8.0: 0.4, 16.0: 0.2}).seconds == (0.0, 0.3, 0.3, 0.4, 0.4)


@given(st.dictionaries(st.integers(1, 4096).map(float), SECONDS, min_size=1))
def test_any_curve_rises_from_0_and_lies_on_or_above_its_points(points):
    curve = rising(points)
    assert (curve.columns[0], curve.seconds[0]) == (0.0, 0.0)
    assert curve.columns[1:] == tuple(sorted(points)) and list(curve.seconds) == sorted(curve.seconds)
    so_far = [max(points[other] for other in points if other <= each) for each in sorted(points)]
    assert list(curve.seconds[1:]) == so_far


# -- what several ranks measured --------------------------------------------------------------------------


def alone(device=None, dtype=torch.float32):
    device = device or Device(torch.device("cpu"), "cpu")
    return TPContext(None, 0, 1, device, NullClock(), UnitPlan.even(1, 1, 1), dtype)


def line(fixed=0.0, slope=0.0):
    return Line(fixed, slope)


def measured(grain=16, allocation=0.0, extraction=0.0, link=Link(), curves=()):
    return RankCalibration(curves, grain, allocation, line(slope=extraction), link)


def merged(*found):
    """Return the costs of what the ranks found."""
    return costs_of(found, (), 4)


def test_every_part_of_the_link_has_the_value_of_its_slowest_rank():
    near = Link(broadcast=line(1e-3, 1e-9), reduce=line(5e-3, 9e-9), piece=line(0, 1e-9))
    far = Link(broadcast=line(2e-3, 5e-9), reduce=line(1e-3, 1e-9), piece=line(1e-3, 0))
    there = Link(broadcast=line(), reduce=line(), piece=line(0, 5e-9))
    link = merged(*(measured(link=each) for each in (near, far, there))).link
    assert link == Link(far.broadcast, near.reduce, there.piece)


def test_the_link_is_fitted_to_transfers_of_relevant_sizes():
    """A megabyte: the fixed part alone, or the price of a byte alone, would name another rank."""
    late, narrow = Link(broadcast=line(9e-3, 1e-9)), Link(broadcast=line(1e-3, 20e-9))
    assert merged(measured(link=late), measured(link=narrow)).link.broadcast == narrow.broadcast
    late = Link(broadcast=line(90e-3, 1e-9))
    assert merged(measured(link=late), measured(link=narrow)).link.broadcast == late.broadcast


def test_the_cost_of_resizing_is_the_slowest_ranks_and_other_costs_are_per_rank():
    curves = [(Curve((0.0, 8.0), (0.0, seconds)),) for seconds in (1.0, 2.0, 3.0)]
    costs = merged(
        measured(16, allocation=0.2, extraction=0.1, curves=curves[0]),
        measured(64, allocation=0.1, extraction=0.4, curves=curves[1]),
        measured(16, allocation=0.0, extraction=0.3, curves=curves[2]),
    )
    assert (costs.grains, costs.allocation, costs.extraction) == ((16, 64, 16), 0.2, line(slope=0.4))
    assert list(costs.curves) == curves


# -- measured for real, by a gang of one ------------------------------------------------------------------

CLASSES = (
    LinearClass("wide", "column", (1000,), (4,), 4, 2),
    LinearClass("narrow", "row", (50,), (4,), 4, 1),
    LinearClass("nothing", "row", (0,), (4,), 4, 1),
    LinearClass("no outputs", "column", (64,), (0,), 4, 1),
)


@pytest.fixture
def gang(tmp_path):
    """A process group of this process alone, in which transfers go nowhere."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(cost_calibration, "ENOUGH_SECONDS", 0.0)


def emulated():
    return EmulatedDevice(DeviceSpec(type="emulated", teraflops=1.0), sleep=lambda seconds: None)


class LikeCuda(Device):
    """A device of which only the kind is that of a GPU."""

    kind = "cuda"


@pytest.mark.parametrize(
    ("device", "grain", "wide"),
    [
        (Device(torch.device("cpu"), "cpu"), 16, (0, 128, 256, 496, 736, 1000)),
        (emulated(), 16, (0, 128, 256, 496, 736, 1000)),
        (LikeCuda(torch.device("cpu"), "gpu"), 64, (0, 128, 256, 496, 736, 1000)),
    ],
    ids=["cpu", "emulated", "cuda"],
)
def test_curves_are_measured_at_whole_blocks_of_the_devices_grain(gang, quick, device, grain, wide):
    costs = calibrate_costs(alone(device), CLASSES)
    assert costs.grains == (grain,) and costs.classes == CLASSES
    many, few, none, mute = costs.curves[0]
    assert many.columns == wide
    assert few.columns == (0, 6, 12, 25, 38, 50)  # too few for blocks
    assert none == mute == Curve((0.0, 1.0), (0.0, 0.0))
    assert many.seconds[0] == 0 and list(many.seconds) == sorted(many.seconds) and many.seconds[-1] > 0


def test_a_large_grain_of_a_gpu_holds_where_there_are_columns_enough(gang, quick):
    large = (LinearClass("large", "column", (64 * 32,), (2,), 2, 1),)
    costs = calibrate_costs(alone(LikeCuda(torch.device("cpu"), "gpu")), large)
    assert costs.curves[0][0].columns == (0, 4 * 64, 8 * 64, 16 * 64, 24 * 64, 32 * 64)


def test_an_emulated_device_extracts_columns_in_0_seconds(gang, quick):
    costs = calibrate_costs(alone(emulated()), CLASSES)
    assert (costs.allocation, costs.extraction) == (0.0, line())


@pytest.mark.parametrize(("dtype", "item_bytes"), [(torch.float32, 4), (torch.bfloat16, 2)], ids=str)
def test_the_size_of_a_number_is_that_of_the_precision(gang, quick, dtype, item_bytes):
    assert calibrate_costs(alone(dtype=dtype), CLASSES[:1]).item_bytes == item_bytes


class Unwelcome:
    """An injected slow-down that fails where a product asks for it."""

    def after(self, operations, started, again):
        raise AssertionError("calibration must not be slowed")


@pytest.mark.parametrize("fails", [False, True], ids=["well", "fails"])
def test_an_injected_slow_down_is_lifted_during_calibration_and_restored(gang, quick, monkeypatch, fails):
    tp, injected = alone(), Unwelcome()
    tp.device.slowdown = injected
    if fails:
        monkeypatch.setattr(cost_calibration, "_link", lambda tp, classes, generator: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            calibrate_costs(tp, CLASSES)
    else:
        calibrate_costs(tp, CLASSES)
    assert tp.device.slowdown is injected
