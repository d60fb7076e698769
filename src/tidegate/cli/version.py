"""Which version of Tidegate this is. Apart from the rest, so that `--version` and bug reports load nothing for it."""


def describe_version() -> str:
    """'tidegate 1.2.3'."""
    # Reading what is installed takes a package for mail with it.
    from importlib.metadata import version

    return f"tidegate {version('tidegate')}"
