"""Process groups and random generators are arguments everywhere in the trainer: none is torch's global one."""

import ast

import pytest
from support.places import ROOT

TRAINER = ROOT / "trainer"
COLLECTIVES = {
    *("all_gather", "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast", "broadcast_object_list"),
    *("gather", "gather_object", "reduce", "reduce_scatter", "scatter", "scatter_object_list", "monitored_barrier"),
    *("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_gather_coalesced"),
    *("send", "recv", "isend", "irecv", "P2POp", "get_rank", "get_world_size", "get_backend"),
}
DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}
DRAWS_IN_PLACE = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "log_normal_"}
HOLDS_GENERATORS = "trainer/heterotp_trainer/checkpoint/generators.py"  # reads and sets their states for checkpoints
GLOBAL = {"manual_seed", "seed", "set_rng_state", "manual_seed_all"}


def calls():
    """Yield place, module (dist, torch, ...) or "", name and call of every call in the trainer."""
    for path in sorted(TRAINER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.func.value), node.func.attr, node


def names(call, keyword):
    return any(each.arg == keyword for each in call.keywords)


def test_every_collective_names_its_group():
    found = [each for each in calls() if each[1] in ("dist", "torch.distributed") and each[2] in COLLECTIVES]
    assert len(found) > 20, found
    positional = {"get_backend", "get_rank", "get_world_size"}  # the group is their first argument
    bare = [f"{at}: {name}" for at, _, name, call in found if not names(call, "group") and name not in positional]
    assert bare == []
    assert [at for at, _, name, call in found if name in positional and not call.args] == []


def test_collectives_are_called_by_the_name_that_is_looked_for():
    """`from torch.distributed import all_reduce` would slip through."""
    allowed = {"HashStore", "PrefixStore", "Store", "TCPStore"}
    for path in TRAINER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.distributed"):
                assert {each.name for each in node.names} <= allowed, path


def test_nothing_draws_from_the_global_generator():
    bare = [
        f"{at}: {name}"
        for at, module, name, call in calls()
        if ((module == "torch" and name in DRAWS) or name in DRAWS_IN_PLACE) and not names(call, "generator")
    ]
    assert bare == []
    seeded = [at for at, module, name, _ in calls() if name in GLOBAL and module in ("torch", "torch.cuda", "random")]
    assert [at for at in seeded if not at.startswith(HOLDS_GENERATORS)] == []


@pytest.mark.parametrize("module", ["random", "np.random", "numpy.random"])
def test_no_other_librarys_generator_is_used(module):
    own = {"default_rng"}  # makes a generator of its own from the seed that it is given
    used = [(at, name) for at, of, name, call in calls() if of == module and not (name in own and call.args)]
    states = {"getstate", "setstate", "get_state", "set_state"}
    assert [each for each in used if not (each[0].startswith(HOLDS_GENERATORS) and each[1] in states)] == []
