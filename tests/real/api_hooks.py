"""What schemathesis is given beside the document: a cursor is an answer's own, so that none can be made up; and a time begins
before it ends, which a document of single parameters cannot say."""

import re

import schemathesis

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
