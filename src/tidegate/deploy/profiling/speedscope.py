"""A profile as a file for https://www.speedscope.app, by its format of sampled profiles. Data in, data out.

A worker is one profile of the file. Its samples are sums, not moments: they stand in the order of their places, so that
also the view in the order of time shows what takes how long.
"""

import msgspec

from tidegate.deploy.profiling.recording import Place, Profile, WorkerProfile

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class _Frame(msgspec.Struct, omit_defaults=True):
    name: str
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Sampled(msgspec.Struct, rename="camel"):
    name: str
    start_value: float
    end_value: float
    samples: list[list[int]]
    weights: list[float]
    type: str = "sampled"
    unit: str = "seconds"


class _File(msgspec.Struct, rename="camel"):
    schema: str = msgspec.field(name="$schema")
    shared: _Shared
    profiles: list[_Sampled]
    name: str
    exporter: str = "Tidegate"
    active_profile_index: int = 0


def speedscope_file(profile: Profile, name: str) -> bytes:
    """The file. Each stack begins with its worker."""
    places = [*profile.places, *(Place(worker.name) for worker in profile.workers)]
    roots = range(len(profile.places), len(places))
    return msgspec.json.encode(
        _File(
            schema=SCHEMA,
            shared=_Shared([_Frame(place.name, place.file or None, place.line or None) for place in places]),
            profiles=[_sampled(worker, root, places) for root, worker in zip(roots, profile.workers, strict=True)],
            name=name,
        )
    )


def _sampled(worker: WorkerProfile, root: int, places: list[Place]) -> _Sampled:
    seen = sorted(worker.seen, key=lambda one: [(places[number].name, number) for number in one.places])
    weights = [round(one.seconds, 6) for one in seen]
    return _Sampled(worker.name, 0.0, round(sum(weights), 6), [[root, *one.places] for one in seen], weights)
