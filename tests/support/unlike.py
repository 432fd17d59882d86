"""Lets a rank on this machine's CPU count as another kind of device; called by programs that tests start as ranks."""

from heterotp_trainer.devices.device import Device
from heterotp_trainer.launch.rendezvous import Gang


def another_processor(rank):
    """Let this rank's device round unlike those of the others."""
    Device.arithmetic = f"a processor of its own {rank}"


def behind_its_host():
    """Let the gang count as one of accelerators, whose values the host reads one iteration later."""
    Gang.late = True
