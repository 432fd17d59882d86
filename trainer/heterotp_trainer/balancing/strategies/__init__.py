"""The balancing strategies: one file and one function each, registered here by the api's names."""

from heterotp_api.strategies import Strategy as Name

from heterotp_trainer.balancing.situation import Strategy
from heterotp_trainer.balancing.strategies.auto import auto
from heterotp_trainer.balancing.strategies.mig import mig
from heterotp_trainer.balancing.strategies.none import none
from heterotp_trainer.balancing.strategies.reshard import reshard
from heterotp_trainer.balancing.strategies.semi import semi
from heterotp_trainer.balancing.strategies.zero import zero

STRATEGIES: dict[Name, Strategy] = {
    "None": none,
    "ZERO": zero,
    "MIG": mig,
    "SEMI": semi,
    "RESHARD": reshard,
    "AUTO": auto,
}
