"""The machine of a built-in trainer's job on emulated devices, by what the manifest declares; nothing is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heterotp_api.job import Device
from heterotp_api.models import BYTE_TOKENS, DECODERS, SEQUENCE_LENGTH
from heterotp_api.training import IMAGE_SIZES, Training
from heterotp_trainer.balancing.simulation import Machine
from heterotp_trainer.plans.linears import Line
from heterotp_trainer.plans.unit_plan import UnitPlan

from heterotp_cli.errors import BadInput
from heterotp_cli.simulate.blocks import FFN, GATED_FFN, Blocks, Vocabulary, costs_of, grouped_attention, link_of

STATE_COPIES = 3  # a weight and Adam's two moments, fp32 each
WEIGHT_BYTES = 4  # also of the losses that ranks sum
ITEM_BYTES = {"fp32": 4, "bf16": 2}
GRAIN = 16


@dataclass(frozen=True)
class Sizes:
    """Blocks of a model on a batch, and its units by family in the order of FAMILIES."""

    blocks: Blocks
    units: tuple[int, int, int]


def declared_machine(training: Training, devices: Sequence[Device], speeds: Sequence[float]) -> Machine:
    """Return emulated devices: products by their speed, collectives by their link, a ring.

    speeds: relative, for the first shares. Raises BadInput for a checkpoint, whose sizes the manifest does not hold.
    """
    sizes, ranks = _language(training) if training.model.is_language else _vision(training), len(devices)
    plan = UnitPlan.from_speeds(list(speeds), *sizes.units)
    first = UnitPlan.even(ranks, *sizes.units) if len(set(speeds)) == 1 else plan
    operation = [1 / (float(device.teraflops or 0.0) * 1e12) for device in devices]
    slowest = max((_line(device) for device in devices), key=lambda line: line.at(1e6))
    item = ITEM_BYTES[training.precision]
    return Machine(
        costs_of(sizes.blocks, first, operation, link_of(ranks, slowest.fixed, slowest.slope), item, GRAIN),
        first,
        fixed=max(device.fixed_seconds or 0.0 for device in devices),
        wait=sum(slowest.at(2 * (ranks - 1) / ranks * each) * count for count, each in _sums(sizes.blocks, item)),
        slowness=tuple(1 / speed for speed in speeds),
    )


def _vision(training: Training) -> Sizes:
    shape, name = training.model.resolve(), training.data.name
    assert name != "text" and name != "pydoc"  # a rule of the api
    tokens = (IMAGE_SIZES[name] // shape.patch_size) ** 2 + 1
    rows = training.batch_size // training.accumulate * tokens
    calls, parameter = shape.depth * training.accumulate, STATE_COPIES * WEIGHT_BYTES * shape.depth
    blocks = Blocks.plain(shape.hidden_size, shape.heads, rows, calls, parameter)
    return Sizes(replace(blocks, recompute=training.recompute), (shape.heads, shape.ffn_units, 0))


def _language(training: Training) -> Sizes:
    """Return the sizes of a preset on a batch of sequences; GPT's embedding and logits are one matrix."""
    if training.model.preset is None:
        where = f"spec.training.model.huggingface: {training.model.huggingface}"
        raise BadInput(f"{where}: the sizes of a checkpoint are not read: give --costs RUN_DIR of a run of this job")
    shape, micro = DECODERS[training.model.preset], training.accumulate
    width, gpt, state = shape.hidden_size, shape.kind == "gpt", STATE_COPIES * WEIGHT_BYTES
    rows = training.batch_size // micro * (training.sequence_length or SEQUENCE_LENGTH)
    attention = grouped_attention(shape.heads // shape.groups, shape.head_size)
    vocabulary = Vocabulary(BYTE_TOKENS, micro, (1 if gpt else 2) * width * state)
    linears, calls = (*attention, *(FFN if gpt else GATED_FFN)), shape.depth * micro
    blocks = Blocks(width, linears, rows, calls, state * shape.depth, vocabulary, training.recompute)
    return Sizes(blocks, (shape.groups, shape.ffn_units, BYTE_TOKENS))


def _sums(blocks: Blocks, item_bytes: int) -> list[tuple[int, int]]:
    """Return the all-reduces of an iteration: how many, and bytes of each.

    A block has two ahead and two back. A vocabulary has one of the embeddings, one back from the logits, and those of
    the loss: each token's greatest logit, then its sum of exponentials beside the logit of its target.
    """
    activations = blocks.rows * blocks.width * item_bytes
    found = [((4 + 2 * int(blocks.recompute)) * blocks.calls, activations)]
    if blocks.vocabulary is not None:
        calls, column = blocks.vocabulary.calls, blocks.rows * WEIGHT_BYTES
        found += [(2 * calls, activations), (calls, column), (calls, 2 * column)]
    return found


def _line(device: Device) -> Line:
    slope = 1 / device.link_bytes_per_second if device.link_bytes_per_second else 0.0
    return Line(device.link_latency_seconds or 0.0, slope)
