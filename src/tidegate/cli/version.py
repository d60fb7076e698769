"""Which version of Tidegate this is. Apart from the rest, so that `--version` and bug reports load nothing for it."""

from importlib.metadata import version


def describe_version() -> str:
    """'tidegate 1.2.3'."""
    return f"tidegate {version('tidegate')}"
