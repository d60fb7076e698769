"""Where things are on this machine, and texts that do not say it, so that results of all machines look the same."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def without_places(text: str, folder: Path | None = None) -> str:
    """The repository, the home folder and the folder of one run have names of their own."""
    places = [(str(folder), "RUN")] if folder is not None else []
    for place, name in [*places, (str(ROOT), "."), (str(Path.home()), "~")]:
        text = text.replace(place, name)
    return text
