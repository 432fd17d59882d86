"""A client of the library: restores a checkpoint under its own plan and writes it again elsewhere."""

import os
from dataclasses import replace
from pathlib import Path

from heterotp import Session
from heterotp_trainer.checkpoint.keeper import CheckpointKeeper
from heterotp_trainer.training.vision import Vision

session = Session.from_environment()
trainer = Vision(session, session.environment.spec.training)
session.watch(trainer.model, trainer.optimizer)
iteration = session.restore()
environment = replace(session.environment, checkpoint_dir=Path(os.environ["RESAVE_DIR"]))
elsewhere = CheckpointKeeper(environment, session.gang.control_group)
elsewhere.save(iteration, session.watched.contents, session.tp)
session.finish()
