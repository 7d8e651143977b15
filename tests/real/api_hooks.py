"""What schemathesis is given beside the document: a cursor is an answer's own, so that none can be made up; and a time begins
before it ends, and that of a capsule before now, which a document of single parameters cannot say."""

import re
import time

import schemathesis

CAPSULE = "/api/v1/capsule"
LONGEST = 1024  # of a cursor, as the document says
# As the document has it: what breaks it is sent.
TIME = re.compile(
    r"[1-9][0-9]{0,5}[smhdw]|(19[7-9][0-9]|20[0-9]{2})-"
    r"((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z"
)


@schemathesis.hook
def before_call(context, case, **kwargs):
    query = case.query or {}
    cursor = query.get("cursor")
    # One that breaks the document is sent: it is to be refused.
    if isinstance(cursor, str) and 1 <= len(cursor) <= LONGEST:
        query.pop("cursor")
    if all(TIME.fullmatch(str(query.get(name))) for name in ("since", "until")):
        query.pop("until")
    if case.path == CAPSULE and is_later_than_now(str(query.get("since"))):
        query.pop("since")


def is_later_than_now(told):
    """Whether it is an instant as the document has it, and not in the past: their texts are in the order of their times."""
    return TIME.fullmatch(told) is not None and "T" in told and told[:19] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
