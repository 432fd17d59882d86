"""Which built-in trainer a manifest asks for, and one rank of it from its start to its end."""

from heterotp_api.training import Training

from heterotp_trainer.membership.errors import GoneError
from heterotp_trainer.session import Session
from heterotp_trainer.training.loop import Task, TrainingLoop


def task_of(session: Session, training: Training) -> Task:
    """Return the model and data of a manifest (all ranks); a trainer's packages are imported on use."""
    if not training.model.is_language:
        from heterotp_trainer.training.vision import Vision

        return Vision(session, training)
    from heterotp_trainer.training.language import Language

    return Language(session, training)


def main(session: Session) -> None:
    """Train one rank of a built-in trainer."""
    training = session.environment.spec.training or Training()
    task = task_of(session, training)
    loop = TrainingLoop(session, training, task)
    lost = False
    while True:
        try:
            if lost:
                loop.regroup()
            _train(session, training, task, loop)
            return
        except GoneError:  # only with runPolicy.elastic; also while the ranks regroup
            lost = True


def _train(session: Session, training: Training, task: Task, loop: TrainingLoop) -> None:
    """Train to the end, or go on to it."""
    ended = loop.run()
    source = training.model.huggingface
    if ended and source is not None:
        from heterotp_trainer.training.finetuned import export

        export(task.model, source, session.environment)
    session.finish(state="succeeded" if ended else "stopped")
