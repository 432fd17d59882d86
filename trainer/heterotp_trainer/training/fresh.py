"""A decoder of a preset with random weights, cut into units without ever being whole on a rank."""

import torch
from heterotp_api.models import DECODERS
from heterotp_api.training import Training

from heterotp_trainer.data.tokenizer import Tokenizer
from heterotp_trainer.model.decoder import Decoder
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import initialize
from heterotp_trainer.session import Session


def fresh_decoder(session: Session, training: Training, tokenizer: Tokenizer, length: int) -> Decoder:
    """Return the preset's decoder for a tokenizer and sequences of `length` tokens (all ranks)."""
    assert training.model.preset is not None
    shape = DECODERS[training.model.preset]
    with torch.device("meta"):
        model = Decoder(shape, tokenizer.vocabulary, length, recompute=training.recompute)
    parallelize(model, session, model.plan, heads=shape.heads, kv_heads=shape.groups, head_dim=shape.head_size)
    initialize(model, training.seed)
    return model
