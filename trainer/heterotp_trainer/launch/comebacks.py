"""Which lost ranks of an elastic gang are started again, and when: pure decisions of exit codes and a clock."""

from heterotp_api.names import EXIT_NOT_LET_IN

FIRST_DELAY_SECONDS = 1.0  # before the second start in a row; each further one waits twice as long
LONGEST_DELAY_SECONDS = 60.0
LIVED_SECONDS = 120.0  # a rank that ran for so long does not die at once: counting begins anew


class Comebacks:
    """Counts how often each rank was started again in a row; most: so often, as runPolicy.backoffLimit has it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row: dict[int, int] = {}
        self.number: dict[int, int] = {}  # how often a rank was started again, in all

    def due(self, rank: int, code: int, started: float, now: float) -> float | None:
        """Return when a rank that ended now is started again; None: never. code: its exit code, -N of a signal.

        Only ranks that were killed, or that the others went on without, come back: others end for a reason that a
        further start does not change. All in seconds of one clock.
        """
        if code >= 0 and code != EXIT_NOT_LET_IN:
            return None
        if now - started > LIVED_SECONDS:
            self._in_a_row[rank] = 0
        times = self._in_a_row.get(rank, 0)
        if times >= self._most:
            return None
        self._in_a_row[rank] = times + 1
        self.number[rank] = self.number.get(rank, 0) + 1
        return now + (min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** (times - 1)) if times else 0.0)
