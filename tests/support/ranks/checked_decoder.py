"""A training script as users write it, for `heterotp check-model`: `checked_decoder.py --what WHAT`.

WHAT: `right`, a mistake of the model, or one of the script.
"""

import argparse

import heterotp
import torch
from plain_decoder import PLAN, SIZES, Decoder  # a module beside the script

parser = argparse.ArgumentParser()
parser.add_argument("--what", required=True)
WHAT = parser.parse_args().what


def main(session):
    if WHAT == "an error of its own":
        int("three")
    model = Decoder(WHAT)
    if WHAT != "watch alone":
        heterotp.parallelize(model, session, plan=PLAN, **SIZES)
        raise AssertionError("a check ends in parallelize")
    session.shard()
    session.watch(model, torch.optim.SGD(model.parameters()))


torch.manual_seed(0)
if WHAT != "nothing":
    heterotp.run_rank(main)
