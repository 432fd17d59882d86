"""Cost calibration: measures once, before the first decision that needs it, what columns and transfers cost.

It yields the curves t(columns) of each class of linears, and Omega (extraction of the kept columns) and Phi1 (transfer
of bytes) of the paper's section 4, all in seconds. Every rank measures its own; all ranks gather all of them.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.launch.json_messages import gather_json
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import grain_for
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link
from heterotp_trainer.plans.work_plan import Piece
from heterotp_trainer.rebalancing.timing import median_seconds, work_seconds
from heterotp_trainer.tensor_parallel.column_partition import Migration
from heterotp_trainer.tensor_parallel.column_transport import BroadcastReduceTransport, ColumnTransport
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import product

SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
REPEATS, TRANSFERS = 3, 5  # of a product, and of a transfer, which other load on a machine or a link disturbs more
ENOUGH_SECONDS, MOST_IN_A_ROW = 0.02, 16
SMALL_ROWS = 8  # of a transfer that is small enough to show the fixed part
LARGE_BYTES = 64 << 20  # of a transfer that is large enough to show the part that grows; logits have many more
GRAINS = {"cpu": 16, "emulated": 16, "cuda": 64}


@dataclass(frozen=True)
class RankCalibration:
    """What one rank measured."""

    curves: tuple[Curve, ...]
    grain: int
    allocation: float
    extraction: Line
    link: Link


def calibrate_costs(tp: TPContext, classes: Sequence[LinearClass]) -> Costs:
    """Return the costs that decisions use (all ranks); an injected slow-down is suspended meanwhile."""
    slowdown, tp.device.slowdown = tp.device.slowdown, None
    tp.device.forget_debt()
    try:
        mine = _measure(tp, classes)
    finally:
        tp.device.slowdown = slowdown
    every: list[RankCalibration] = gather_json(mine, RankCalibration, tp.ranks, tp.control_group)
    return costs_of(every, classes, tp.dtype.itemsize)


def costs_of(every: Sequence[RankCalibration], classes: Sequence[LinearClass], item_bytes: int) -> Costs:
    """Return the costs of a gang from what its ranks measured; item_bytes: of one number that is transferred."""
    return Costs(
        classes=tuple(classes),
        curves=tuple(each.curves for each in every),
        grains=tuple(each.grain for each in every),
        link=_slowest_link([each.link for each in every]),
        item_bytes=item_bytes,
        allocation=max(each.allocation for each in every),
        extraction=max((each.extraction for each in every), key=lambda line: line.at(1.0)),
    )


def _measure(tp: TPContext, classes: Sequence[LinearClass]) -> RankCalibration:
    grain = GRAINS[tp.device.kind]
    generator = torch.Generator(tp.device.torch_device).manual_seed(0)
    curves, extractions = [], []
    for linears in classes:
        curve, extraction = _curves(tp, linears, grain, generator)
        curves.append(curve)
        extractions.append([seconds * linears.calls for seconds in extraction])
    shares = [1 - share for share in SHARES[:-1]]
    line = fit(shares, [sum(each[i] for each in extractions) for i in range(len(shares))])
    # Omega1 is the part that does not grow with the pruned columns
    return RankCalibration(tuple(curves), grain, line.fixed, Line(0.0, line.slope), _link(tp, classes, generator))


def _curves(tp: TPContext, linears: LinearClass, grain: int, generator: torch.Generator) -> tuple[Curve, list[float]]:
    """Return the seconds of one call by number of columns, and those of extracting the kept columns by share."""
    columns, outputs = _measured_shape(linears, tp.rank)
    if not columns or not outputs:
        return Curve((0.0, 1.0), (0.0, 0.0)), [0.0] * (len(SHARES) - 1)
    shapes = ((linears.rows, columns), (outputs, columns), (linears.rows, outputs))
    x, w, dy = (_random(tp, generator, *shape) for shape in shapes)
    points, extraction = {}, []
    for share in SHARES:
        kept = _evenly_spread(columns, share, grain_for(None, grain, columns), tp.device.torch_device)
        xk, wk = kept.gather(x), kept.gather(w)
        points[float(len(kept))] = timed(tp, partial(_call, xk, wk, dy, tp))
        if share < 1:
            extraction.append(0.0 if tp.device.emulated else timed(tp, partial(_extract, kept, x, w, xk, wk)))
    return replace(rising(points), outputs=outputs), extraction


def _measured_shape(linears: LinearClass, rank: int) -> tuple[int, int]:
    """Return columns and outputs to measure with: the rank's own; those of an even share where it owns no units."""
    column = linears.parallel == "column"
    owned = linears.outputs if column else linears.columns
    units = owned[rank] or -(-sum(owned) // len(owned) // linears.per_unit) * linears.per_unit
    return (linears.columns[rank], units) if column else (units, linears.outputs[rank])


def rising(points: dict[float, float]) -> Curve:
    """Return the curve through the points (columns -> seconds), raised so that more columns never take less time."""
    columns = sorted(points)
    seconds: list[float] = []
    for each in columns:
        seconds.append(max(points[each], seconds[-1] if seconds else 0.0))
    return Curve((0.0, *columns), (0.0, *seconds))


def _evenly_spread(columns: int, share: float, grain: int, device: torch.device) -> ColumnSet:
    """Return about `share` of the columns, in whole blocks spread evenly."""
    blocks = max(1, columns // grain)
    count = max(1, round(share * blocks))
    if count == blocks:
        return ColumnSet(torch.arange(columns, device=device), columns, grain)
    numbers = torch.arange(count, device=device) * blocks // count
    return ColumnSet.of_blocks(numbers, columns, grain)


def _call(x: Tensor, w: Tensor, dy: Tensor, tp: TPContext) -> None:
    product(x, w.t(), tp)
    product(dy, w, tp)
    product(dy.t(), x, tp)


def _extract(kept: ColumnSet, x: Tensor, w: Tensor, dx: Tensor, dw: Tensor) -> None:
    """Copy what a resized call copies beside its products: forward and backward select the kept columns each."""
    for _ in range(2):
        kept.gather(x)
        kept.gather(w)
    for whole, part in ((x, dx), (w, dw)):
        kept.put(torch.zeros_like(whole), part)


def _random(tp: TPContext, generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, device=tp.device.torch_device, generator=generator).to(tp.dtype)


def timed(tp: TPContext, work: Callable[[], object]) -> float:
    """Return the median seconds of the work; short work runs several times in a row."""
    once = max(work_seconds(tp.device, work), 1e-9)
    count = max(1, min(MOST_IN_A_ROW, round(ENOUGH_SECONDS / once)))
    return median_seconds(tp.device, work, REPEATS, in_a_row=count)


def _link(tp: TPContext, classes: Sequence[LinearClass], generator: torch.Generator) -> Link:
    """Return the lines seconds(bytes) of transfers from rank 0, each measured at two sizes (all ranks)."""
    width = max((max(linears.outputs) for linears in classes), default=1)
    rows = max((linears.rows for linears in classes), default=SMALL_ROWS)
    pieces = tuple(Piece(0, rank, rank - 1, rank) for rank in range(1, tp.ranks))
    tree = BroadcastReduceTransport(tp, Migration(0, width, pieces, "broadcastReduce"))
    pair = ColumnTransport(tp, Migration(0, width, pieces[:1], "scatterGather"))

    def whole(transport: ColumnTransport, n: int) -> Callable[[], object]:
        sent = _random(tp, generator, n, width) if transport.sends else None
        return lambda: transport.send_whole(sent, n, width)()

    def summed(n: int) -> Callable[[], object]:
        return lambda: tree.return_sum(_random(tp, generator, n, width), n, width)

    def line(make: Callable[[int], Callable[[], object]]) -> Line:
        sizes = (SMALL_ROWS, max(min(rows, LARGE_BYTES // (width * tp.dtype.itemsize)), 2 * SMALL_ROWS))
        return fit([n * width * tp.dtype.itemsize for n in sizes], [_together(tp, make(n)) for n in sizes])

    return Link(line(lambda n: whole(tree, n)), line(summed), line(lambda n: whole(pair, n)))


def _together(tp: TPContext, work: Callable[[], object]) -> float:
    """Return the median seconds of a transfer that all ranks start at the same time (all ranks)."""
    seconds = []
    for _ in range(TRANSFERS):
        dist.barrier(group=tp.control_group)
        seconds.append(work_seconds(tp.device, work))
    return statistics.median(seconds)


def fit(amounts: Sequence[float], seconds: Sequence[float]) -> Line:
    """Return the least-squares line; neither part is negative."""
    mean_x, mean_y = statistics.fmean(amounts), statistics.fmean(seconds)
    spread = sum((x - mean_x) ** 2 for x in amounts)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(amounts, seconds, strict=True)) / spread if spread else 0.0
    slope = max(0.0, slope)
    return Line(max(0.0, mean_y - slope * mean_x), slope)


def _slowest_link(links: Sequence[Link]) -> Link:
    """Return, per kind of transfer, the line of the rank whose transfer of a megabyte takes longest."""

    def longest(name: str) -> Line:
        lines: list[Line] = [getattr(link, name) for link in links]
        return max(lines, key=lambda line: line.at(1e6))

    return Link(longest("broadcast"), longest("reduce"), longest("piece"))
