"""How far a job is to train, and whether that is further than a run that has succeeded. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """The end of a run by its manifest: optimizer steps, passes through the data, or what an own program decides.

    program: digest of an own program's commands and environments; None for the built-in trainer.
    """

    iterations: int | None = None
    epochs: int | None = None
    program: str | None = None

    def goes_beyond(self, done: "Goal") -> bool:
        """Return whether the manifest asks for more than a run has done; another program is taken for more."""
        if self.program is not None:
            return self.program != done.program
        if self.iterations is not None:
            return self.iterations > (done.iterations or 0)
        return (self.epochs or 1) > (done.epochs or 0)

    def advice(self, done: "Goal") -> str:
        """Return how the manifest would ask for more than a run has done."""
        if self.program is not None:
            return "change command or environment of the container trainer to train on"
        if self.iterations is not None:
            return f"spec.training.iterations: {self.iterations} must be more than {done.iterations or 0} to train on"
        return f"spec.training.epochs: {self.epochs or 1} must be more than {done.epochs or 0} to train on"
