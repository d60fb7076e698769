"""Requests to one bucket of S3, each tried a bounded number of times, such that whoever creates an object knows it.

A put may be sent twice without anybody here having asked for it: a connection pool or a proxy repeats what it takes for
repeatable, and a put whose answer was lost looks so. The second time the condition fails, because of one's own object.
So each put bears a mark of its own, kept with the object, and a condition that fails is no answer yet: whose mark the
object has decides. This module must never say that another writer was first without having looked.

s3fs gives the client, its settings and the loop that it runs on, in a thread of its own. Its listings, its caches and
its repetitions are not used, nor are those of the client: they know neither bounds of time nor which errors pass.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fsspec.asyn import sync
from s3fs import S3FileSystem

from tidegate.errors import InvalidError
from tidegate.storage.port import AlreadyExists, NotFound, StorageUnavailable
from tidegate.storage.s3_errors import Verdict, judge, refused, unavailable

Answer = dict[str, Any]
T = TypeVar("T")

PAUSES = (0.1, 0.4, 1.6)
"""Seconds before the second and each later try; there are no more tries than that."""
CONNECT_TIMEOUT = 5
READ_TIMEOUT = 15
REQUEST_TIMEOUT = 60
"""Seconds for one try of a request that sends at most one part: slower than 140 kB/s counts as no answer."""

PART = 8 * 2**20
"""Bytes that one request sends; what is larger goes in several, and appears when all are there."""
PARTS_MAX = 10_000
PARTS_AT_ONCE = 4


MARK = "tidegate-put"
"""The name, in an object's metadata, of what tells a put from all others."""


def new_mark() -> str:
    """Different each time, in all processes."""
    return uuid.uuid4().hex


class ConditionFailed(Exception):
    """An object is there."""


class Missing(Exception):
    """There is no such object, or no such upload."""


class Bucket:
    """Objects of a bucket by key. Any number of threads may call it; the calls block.

    Raises StorageUnavailable when no answer came, or only refusals that pass, in all tries; InvalidError for refusals
    that do not pass. `location` is what these messages begin with.
    """

    def __init__(self, name: str, location: str, pauses: Sequence[float] = PAUSES) -> None:
        self.name = name
        self._location = location
        self._pauses = pauses
        settings: Answer = {"region_name": region} if (region := os.environ.get("AWS_REGION")) else {}
        self._files = S3FileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            client_kwargs=settings,
            config_kwargs={
                "connect_timeout": CONNECT_TIMEOUT,
                "read_timeout": READ_TIMEOUT,
                "retries": {"mode": "standard", "total_max_attempts": 1},
            },
        )

    def create(self, key: str, data: bytes) -> None:
        """Make the object unless there is one. Raises AlreadyExists."""
        self._run(self._create, key, data)

    def replace(self, key: str, data: bytes) -> None:
        """Make the object, in place of the one that may be there."""
        self._run(self._replace, key, data)

    def get(self, key: str) -> bytes:
        """The whole content. Raises NotFound."""
        content: bytes = self._run(self._get, key)
        return content

    def has(self, key: str) -> bool:
        """Whether there is such an object, asked of itself and not of a listing."""
        found: bool = self._run(self._has, key)
        return found

    def keys(self, prefix: str) -> list[str]:
        """All keys that begin with `prefix`."""
        found: list[str] = self._run(self._keys, prefix)
        return found

    def delete(self, key: str) -> None:
        """Remove the object, if there is one."""
        self._run(self._ask, "delete_object", Key=key)

    def _run(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        return sync(self._files.loop, call, *arguments, **named)

    # -- all below runs on the loop --

    async def _create(self, key: str, data: bytes) -> None:
        mark = new_mark()
        try:
            await self._put(key, data, mark, IfNoneMatch="*")
        except ConditionFailed:
            if not await self._bears(key, mark):
                raise AlreadyExists(key) from None

    async def _replace(self, key: str, data: bytes) -> None:
        await self._put(key, data, new_mark())

    async def _put(self, key: str, data: bytes, mark: str, **condition: str) -> None:
        if len(data) <= PART:
            await self._ask("put_object", Key=key, Body=data, Metadata={MARK: mark}, **condition)
        else:
            await self._put_in_parts(key, data, mark, condition)

    async def _bears(self, key: str, mark: str) -> bool:
        try:
            answer = await self._ask("head_object", Key=key)
        except Missing:
            raise StorageUnavailable(f"{self._location}: {key} came and went while it was written") from None
        return bool(answer["Metadata"].get(MARK) == mark)

    async def _put_in_parts(self, key: str, data: bytes, mark: str, condition: dict[str, str]) -> None:
        """Nothing is visible until the last request, which has the condition and names every part."""
        upload = (await self._ask("create_multipart_upload", Key=key, Metadata={MARK: mark}))["UploadId"]
        try:
            parts = {"Parts": await self._upload_parts(key, upload, data)}
            await self._ask("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload=parts, **condition)
        except Missing:
            # It was completed before, and the answer was lost, or somebody has abandoned it.
            if not await self._bears(key, mark):
                raise StorageUnavailable(f"{self._location}: the upload of {key} was abandoned") from None
        except Exception:
            await self._abandon(key, upload)
            raise

    async def _upload_parts(self, key: str, upload: str, data: bytes) -> list[Answer]:
        size = max(PART, -(-len(data) // PARTS_MAX))
        begins = range(0, len(data), size)
        parts: list[Answer] = []
        for first in range(0, len(begins), PARTS_AT_ONCE):
            numbers = range(first, min(first + PARTS_AT_ONCE, len(begins)))
            asked = [
                self._ask(
                    "upload_part",
                    Key=key,
                    UploadId=upload,
                    PartNumber=number + 1,
                    Body=data[begins[number] : begins[number] + size],
                )
                for number in numbers
            ]
            parts += [
                {"PartNumber": number + 1, "ETag": answer["ETag"]}
                for number, answer in zip(numbers, await _all_of(asked), strict=True)
            ]
        return parts

    async def _abandon(self, key: str, upload: str) -> None:
        """Free what the parts hold; an upload that was completed is not touched by it."""
        try:
            await self._ask("abort_multipart_upload", Key=key, UploadId=upload)
        except (Missing, StorageUnavailable, InvalidError):
            # The error that led here counts. What is left costs a little until a rule of the bucket removes it.
            return

    async def _get(self, key: str) -> bytes:
        try:
            content: bytes = await self._ask("get_object", Key=key)
        except Missing:
            raise NotFound(key) from None
        return content

    async def _has(self, key: str) -> bool:
        try:
            await self._ask("head_object", Key=key)
        except Missing:
            # That answer is the same where the whole bucket is missing; this one is not.
            await self._ask("list_objects_v2", Prefix=key, MaxKeys=1)
            return False
        return True

    async def _keys(self, prefix: str) -> list[str]:
        return [entry["Key"] async for page in self._pages(prefix) for entry in page.get("Contents", ())]

    async def _pages(self, prefix: str) -> AsyncIterator[Answer]:
        more: dict[str, str] = {}
        while True:
            page = await self._ask("list_objects_v2", Prefix=prefix, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def _ask(self, operation: str, **parameters: Any) -> Any:
        """The answer to one request; of `get_object` the content."""
        pauses = iter(self._pauses)
        while True:
            try:
                return await self._try(operation, parameters)
            except Exception as error:
                self._raise_unless_passing(error)
                pause = next(pauses, None)
                if pause is None:
                    raise unavailable(self._location, error) from error
            await asyncio.sleep(pause)

    def _raise_unless_passing(self, error: Exception) -> None:
        match judge(error):
            case Verdict.CONDITION_FAILED:
                raise ConditionFailed from None
            case Verdict.MISSING:
                raise Missing from None
            case Verdict.FINAL:
                raise refused(self._location, error) from error
            case None:
                raise error

    async def _try(self, operation: str, parameters: Answer) -> Any:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            client = await self._client()
            answer = await getattr(client, operation)(Bucket=self.name, **parameters)
        if operation != "get_object":
            return answer
        # As long as bytes come, reading may take what it takes.
        async with answer["Body"] as body:
            return await body.read()

    async def _client(self) -> Any:
        try:
            return await self._files.set_session()
        except ValueError as error:
            # What the client says of an AWS_ENDPOINT_URL that is no URL.
            raise refused(self._location, error) from error


async def _all_of(asked: Sequence[Awaitable[T]]) -> list[T]:
    """All answers, or the first error once none of the requests is under way any more."""
    answers = await asyncio.gather(*asked, return_exceptions=True)
    found: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found
