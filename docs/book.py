"""A preprocessor of mdBook: the book has no copy of files outside docs/, so links to them become the files' names."""

import json
import re
import sys

# [text](../path) or [text](../path#anchor)
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)\s#]+)(?:#[^)]*)?\)")


def named(link):
    text, path = link.group(1).strip("`"), link.group(2).rstrip("/")
    return f"`{path}`" if text.rstrip("/") in path else f"{text} (`{path}`)"


def rewrite(items):
    for item in items:
        if chapter := item.get("Chapter") if isinstance(item, dict) else None:
            chapter["content"] = OUTSIDE.sub(named, chapter["content"])
            rewrite(chapter["sub_items"])


if len(sys.argv) > 1:
    # `supports RENDERER`: all of them.
    sys.exit(0)
context, book = json.load(sys.stdin)
rewrite(book.get("items") or book.get("sections") or [])
json.dump(book, sys.stdout)
