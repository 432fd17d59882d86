"""What a gang with runPolicy.elastic can do of a balancing policy."""

from heterotp_api.policy import BalancingSettings

LOSSLESS = "take None, MIG, RESHARD, or AUTO without loss"


def elastic_problem(settings: BalancingSettings) -> str | None:
    """Return what such a gang cannot do, as `field: value: what would be right` below the settings; None: nothing.

    The update of a mirror is that of its owner only where no column is pruned, and ranks get other numbers when one of
    them is lost.
    """
    if settings.prunes:
        return f"strategy: {settings.strategy}: prunes columns, which runPolicy.elastic does not support: {LOSSLESS}"
    return next(
        (
            f"{field}: {list(ranks)}: ranks get other numbers when one is lost (runPolicy.elastic): leave it out"
            for field, ranks in settings.named_ranks.items()
            if ranks
        ),
        None,
    )
