"""What an error of S3 means: may the request be tried again, and if not, what can somebody do about it.

It is decided by the code in the answer and by the kind of exception, never by a message. This module must never take an
answer that did not come, or a server's own failure, for a refusal: the request may have been carried out.
"""

import enum
import re

from aiohttp import ClientError as TransportError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ResponseStreamingError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnected
from botocore.parsers import ResponseParserError

from tidegate.errors import InvalidError, TidegateError
from tidegate.storage.port import StorageUnavailable


class Verdict(enum.Enum):
    """What an error says of the request that it answers."""

    AGAIN = "carried out or not; it may be answered the next time"
    CONDITION_FAILED = "not carried out: an object is there"
    MISSING = "there is no such object, or no such upload in parts any more"
    FINAL = "not carried out, nor will it be the next time"


_PASSING = frozenset(
    (
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "OperationAborted",
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
    )
)
_VERDICTS = {
    "PreconditionFailed": Verdict.CONDITION_FAILED,
    "412": Verdict.CONDITION_FAILED,
    "NoSuchKey": Verdict.MISSING,
    "404": Verdict.MISSING,
    "NoSuchUpload": Verdict.MISSING,
    **dict.fromkeys(_PASSING, Verdict.AGAIN),
}
_NO_ANSWER = (
    NotConnected,
    HTTPClientError,
    TransportError,
    IncompleteReadError,
    ResponseStreamingError,
    ResponseParserError,
    CredentialRetrievalError,
    OSError,
)
"""Connections that are refused, cut or silent (TimeoutError is an OSError), and answers that are not S3's."""

_WHERE = "AWS_ENDPOINT_URL and AWS_REGION say where it is looked for."
_NO_BUCKET = f"Create the bucket, or choose another checkpoints.dir; {_WHERE}"
_REGION = "Set AWS_REGION to the region of the bucket, and AWS_ENDPOINT_URL only for what is not AWS."
_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN for temporary ones) or AWS_PROFILE, or "
    "give this machine a role; all processes of the job need them."
)
_RIGHTS = (
    "Allow s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on "
    "what is in it; or choose another checkpoints.dir."
)
_CLOCK = "Set this machine's clock."
_CONDITIONS = "Choose a storage that honours If-None-Match, as Amazon S3 does: docs/storage.md names them."
_OTHER = "Look the code up in the documentation of S3; or choose another checkpoints.dir."
_REMEDIES = {
    "NoSuchBucket": _NO_BUCKET,
    "InvalidBucketName": _NO_BUCKET,
    **dict.fromkeys(
        ("PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"), _REGION
    ),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"),
        _CREDENTIALS,
    ),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem", "403"), _RIGHTS),
    "RequestTimeTooSkewed": _CLOCK,
    **dict.fromkeys(("NotImplemented", "501"), _CONDITIONS),
}
_BY_TYPE: tuple[tuple[type[BotoCoreError], str], ...] = (
    (NoCredentialsError, _CREDENTIALS),
    (PartialCredentialsError, _CREDENTIALS),
    (ProfileNotFound, _CREDENTIALS),
    (SSLError, "Set AWS_CA_BUNDLE to a file with the certificates of the authority that this endpoint uses."),
    (ParamValidationError, _NO_BUCKET),
)
_USER_IN_URL = re.compile(r"//[^/\s@]*@")


def judge(error: BaseException) -> Verdict | None:
    """What `error` says of its request; None for what is no error of S3, its client or the network."""
    if isinstance(error, ClientError):
        code, status = _answered(error)
        return _VERDICTS.get(code) or _by_status(status)
    if isinstance(error, SSLError):
        return Verdict.FINAL
    if isinstance(error, _NO_ANSWER):
        return Verdict.AGAIN
    return Verdict.FINAL if isinstance(error, BotoCoreError) else None


def _by_status(status: int) -> Verdict:
    return Verdict.AGAIN if status == 429 or (status >= 500 and status != 501) else Verdict.FINAL


def unavailable(location: str, error: BaseException) -> StorageUnavailable:
    """No answer came, or only refusals that may pass, as often as it was tried."""
    return StorageUnavailable(f"{location}: {_shown(error)}")


def refused(location: str, error: BaseException) -> TidegateError:
    """An answer that will be the same the next time, with what to do about it."""
    if isinstance(error, ClientError):
        remedy = _REMEDIES.get(_answered(error)[0], _OTHER)
    else:
        remedy = next((text for kind, text in _BY_TYPE if isinstance(error, kind)), _OTHER_SETTING)
    return InvalidError(f"{location}: {_shown(error)}", remedy=remedy)


_OTHER_SETTING = "Check the AWS_… variables and the files in ~/.aws that this user has."


def _answered(error: ClientError) -> tuple[str, int]:
    """The code in an answer and its HTTP status."""
    code = error.response.get("Error", {}).get("Code", "")
    return str(code), int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _shown(error: BaseException) -> str:
    """The error in one line, without what a URL of an endpoint or a proxy may hold before its host."""
    text = str(error) or type(error).__name__
    if isinstance(error, ClientError):
        said = error.response.get("Error", {}).get("Message", "")
        text = f"{error.operation_name} was answered with {_answered(error)[0]}: {said}"
    return _USER_IN_URL.sub("//", " ".join(text.split()))
