"""Which version of Tidegate this is. Apart from the rest, so that `--version` and bug reports load nothing for it."""


def describe_version() -> str:
    """'tidegate 1.2.3'; it also says when the compiled part is missing, without which Kafka takes more time."""
    # Reading what is installed takes a package for mail with it.
    from importlib.metadata import version

    from tidegate.native import native

    return f"tidegate {version('tidegate')}{'' if native else ', without its compiled part'}"
