"""What schemathesis is told beside the document: a cursor is an answer's own, so that none can be made up."""

import schemathesis


@schemathesis.hook
def before_call(context, case, **kwargs):
    if case.query:
        case.query.pop("cursor", None)
