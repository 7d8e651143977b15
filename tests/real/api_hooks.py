"""Rules for schemathesis that an OpenAPI document cannot express: a cursor must come from an answer, a time range
must begin before it ends, and a capsule's time must be in the past."""

import re
import time

import schemathesis

CAPSULE = "/api/v1/capsule"
LONGEST = 1024  # maximum length of a cursor in the document
# The pattern of the document. Invalid values are still sent.
TIME = re.compile(
    r"[1-9][0-9]{0,5}[smhdw]|(19[7-9][0-9]|20[0-9]{2})-"
    r"((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z"
)


@schemathesis.hook
def before_call(context, case, **kwargs):
    query = case.query or {}
    cursor = query.get("cursor")
    # A cursor that breaks the document is sent, because the API must refuse it.
    if isinstance(cursor, str) and 1 <= len(cursor) <= LONGEST:
        query.pop("cursor")
    if all(TIME.fullmatch(str(query.get(name))) for name in ("since", "until")):
        query.pop("until")
    if case.path == CAPSULE and is_later_than_now(str(query.get("since"))):
        query.pop("since")


def is_later_than_now(told):
    """Returns whether `told` is an instant as the document defines it and in the future. These texts sort by time."""
    return TIME.fullmatch(told) is not None and "T" in told and told[:19] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
