"""While Tidegate's modules are imported, Python does not look for garbage: they make tens of thousands of objects that
stay, and each look would go through all of them again. Imported before them. The collector is left as it was found.
"""

import gc

_WAS_ENABLED = gc.isenabled()
gc.disable()


def are_done() -> None:
    """The last of them is imported."""
    if _WAS_ENABLED:
        gc.enable()
