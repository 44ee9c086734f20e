"""``torch.zendnn``: the functions that torch expects of a device type's module.

The CPU is not an accelerator, so code that looks for one must find none here.
"""


def is_available() -> bool:
    """Return False: zendnn tensors live on the CPU, and nothing should be moved to them."""
    return False


def is_initialized() -> bool:
    """Return True: there is nothing to initialise."""
    return True


def device_count() -> int:
    """Return the number of accelerators: none."""
    return 0


def current_device() -> int:
    """Return the index of the one zendnn device."""
    return 0


def manual_seed_all(seed: int) -> None:
    """Do nothing: zendnn tensors have no random numbers of their own."""


def _is_in_bad_fork() -> bool:
    return False
