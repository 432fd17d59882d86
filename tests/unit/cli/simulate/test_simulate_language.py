"""heterotp simulate of language models: logits and the rows of the vocabulary, which move as units do."""

from dataclasses import replace

import pytest
from heterotp_cli.errors import BadInput
from heterotp_cli.simulate.blocks import GATED_FFN, Blocks, Vocabulary, costs_of, grouped_attention, link_of
from heterotp_cli.simulate.machine import machine_of
from heterotp_cli.simulate.scenario import prospect
from heterotp_trainer.balancing.simulation import Machine
from heterotp_trainer.plans.linears import UnitMoveCost
from heterotp_trainer.plans.unit_plan import USUAL_WEIGHTS, UnitPlan
from support.simulated_job import manifest, run_of, spec_of

SPEED = 1e-9  # seconds of an operation


def language(rows=1000, micro_batches=1, ranks=4):
    """Return two blocks of width 64 and a vocabulary as wide as eight of them, on 80 tokens."""
    plan = UnitPlan.even(ranks, 8, 256, rows)
    vocabulary = Vocabulary(rows, micro_batches, 2 * 64 * 12.0)
    blocks = replace(Blocks.plain(64, 8, 80, 2 * micro_batches, 24.0), vocabulary=vocabulary)
    costs = costs_of(blocks, plan, [SPEED] * ranks, link_of(ranks, 0.0, 1e-9), 4, 16)
    return blocks, Machine(costs, plan, fixed=0.02)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_logits_of_all_tokens_are_a_product_of_their_own(micro_batches):
    blocks, machine = language(micro_batches=micro_batches)
    operations = 6 * 80 * (2 * 12 * 64**2 + 1000 * 64) * micro_batches
    assert blocks.operations(machine.unit_plan) == operations
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(operations * SPEED / 4 + 0.02)
    assert machine.costs.unit_move.vocab_bytes == 2 * 64 * 12


def test_rows_of_the_vocabulary_leave_a_straggler_in_every_simulation():
    _, machine = language()
    products = machine.costs.full_seconds(0)
    found = prospect(machine, [1.0, 1.0, 4.0, 1.0])
    outcomes = {each.name: each for each in found.outcomes}
    assert found.untouched == pytest.approx(4 * products + 0.02)
    assert found.limit == pytest.approx(products * 4 / 3.25 + 0.02, rel=1e-3)
    assert found.limit <= outcomes["RESHARD"].seconds <= 1.06 * found.limit
    assert "vocabulary rows" in outcomes["RESHARD"].reason
    assert outcomes["evict"].shares[2] == 0
    assert sum(outcomes["RESHARD"].shares) == pytest.approx(1)
    assert outcomes["RESHARD"].shares[2] == pytest.approx(0.25 / 3.25, rel=0.25)
    assert outcomes["ZERO"].deleted > 0.1


def test_families_weigh_as_much_as_their_products():
    _, machine = language()
    block, logits = 2 * 64**2, 1000 * 64
    whole = 12 * block + logits
    assert machine.costs.weights == pytest.approx((4 * block / whole, 8 * block / whole, logits / whole))
    assert replace(machine.costs, classes=(), curves=((),) * 4).weights == USUAL_WEIGHTS


def test_grouped_heads_and_gated_networks_have_their_own_linears():
    plan = UnitPlan.even(4, 8, 100, 300)
    linears = (*grouped_attention(2, 12), *GATED_FFN)
    blocks = Blocks(192, linears, 80, 2, 24.0, Vocabulary(300, 1, 1.0))
    weights = 192 * (8 * (2 + 1 + 1 + 2) * 12 + 3 * 100) * 2 + 192 * 300
    assert blocks.operations(plan) == 6 * 80 * weights
    machine = Machine(costs_of(blocks, plan, [SPEED] * 4, link_of(4, 0.0, 1e-9), 4, 16), plan)
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(6 * 80 * weights * SPEED / 4)
    assert machine.costs.unit_move == UnitMoveCost(192 * 24.0 * 6 * 12, 192 * 24.0 * 3, 1.0)


def of_text(folder, model, training="", **options):
    """Return the manifest of a language model on sequences of 10 tokens."""
    path = manifest(folder, **options)
    text = path.read_text().replace("{hiddenSize: 64, depth: 2, heads: 8, patchSize: 4}", model)
    path.write_text(text.replace("synthetic", "pydoc") + f"    sequenceLength: 10\n{training}")
    return path


# weights of a preset's blocks (query, key, value, out; FFN) and of its logits; matrices of the vocabulary
DECODER_WEIGHTS = {
    "gpt-tiny": (2 * (4 * 192 * 192 + 2 * 192 * 768), 257 * 192, 1),
    "llama-tiny": (2 * (2 * 192 * 192 + 2 * 192 * 96 + 3 * 192 * 512), 257 * 192, 2),
    "llama-1b": (16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192), 257 * 2048, 2),
}
DEPTHS = {"gpt-tiny": 2, "llama-tiny": 2, "llama-1b": 16}
WIDTHS = {"gpt-tiny": 192, "llama-tiny": 192, "llama-1b": 2048}


def around_products(preset, micro_batches, sums_of_a_block):
    """Return the seconds of an iteration that are no products: of the devices' own, and sums over four ranks."""
    rows = 160 // micro_batches
    sums = {WIDTHS[preset]: sums_of_a_block * DEPTHS[preset] + 2, 1: 1, 2: 1}  # by numbers of a token
    ring = sum(count * (0.0001 + 2 * 3 / 4 * rows * each * 4 / 1e9) for each, count in sums.items())
    return 0.02 + micro_batches * ring


@pytest.mark.parametrize("preset", DECODER_WEIGHTS)
def test_a_language_preset_takes_the_declared_times(tmp_path, preset):
    blocks, logits, matrices = DECODER_WEIGHTS[preset]
    model = f"{{preset: {preset}}}"
    machine = machine_of(spec_of(of_text(tmp_path, model)), None, None)
    assert sum(machine.unit_plan.counts("vocab")) == 257
    assert machine.costs.unit_move.vocab_bytes == matrices * WIDTHS[preset] * 12
    # uneven: 257 rows, and all four wait for the rank with one more
    seconds = 6 * 160 * (blocks / 4 + 65 / 257 * logits) / 1e9
    assert machine.costs.full_seconds(0) == pytest.approx(seconds)
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(seconds + around_products(preset, 1, 4))
    options = of_text(tmp_path, model, "    recompute: true\n    accumulate: 2\n")
    again = machine_of(spec_of(options), None, None)
    more = 6 * 160 * (4 / 3 * blocks / 4 + 65 / 257 * logits) / 1e9
    assert prospect(again, [1.0] * 4).homogeneous == pytest.approx(more + around_products(preset, 2, 6))


@pytest.mark.parametrize("preset", DECODER_WEIGHTS)
def test_slow_ranks_own_fewer_rows_of_the_vocabulary(tmp_path, preset):
    machine = machine_of(
        spec_of(of_text(tmp_path, f"{{preset: {preset}}}", shares="declared", speed="0.25")), None, None
    )
    rows = machine.unit_plan.counts("vocab")
    assert rows[3] == pytest.approx(257 * 0.25 / 3.25, abs=1) and sum(rows) == 257
    found = prospect(machine_of(spec_of(of_text(tmp_path, f"{{preset: {preset}}}")), None, None), [1.0, 1.0, 4.0, 1.0])
    outcomes = {each.name: each for each in found.outcomes}
    assert found.limit <= outcomes["RESHARD"].seconds < 0.6 * found.untouched
    assert "vocabulary rows" in outcomes["RESHARD"].reason and outcomes["evict"].shares[2] == 0


def test_a_checkpoint_is_simulated_from_a_run(tmp_path):
    path = of_text(tmp_path, "{huggingface: /models/llama}")
    with pytest.raises(BadInput) as caught:
        machine_of(spec_of(path), None, None)
    where = "spec.training.model.huggingface: /models/llama"
    words = "the sizes of a checkpoint are not read: give --costs RUN_DIR of a run of this job"
    assert str(caught.value) == f"{where}: {words}"


def test_the_costs_of_a_run_contain_its_vocabulary(tmp_path):
    _, machine = language()
    found = run_of(tmp_path, machine.costs, vocabularyRows=250)
    assert (found.costs, found.unit_plan) == (machine.costs, machine.unit_plan)
    embedding_alone = replace(machine.costs, classes=machine.costs.classes[:-1])  # no logits that were measured
    assert run_of(tmp_path, embedding_alone, vocabularyRows=7).unit_plan.counts("vocab") == (7,) * 4
