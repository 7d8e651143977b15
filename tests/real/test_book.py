"""The mdBook of docs/. It contains no other files, so links must not lead to them."""

import json
import re
import subprocess
import sys

from helm import PROJECT

DOCS = PROJECT / "docs"


def test_links_out_of_the_book_become_names():
    pages = {page.name: page.read_text() for page in DOCS.glob("*.md")}
    chapters = [{"Chapter": {"name": name, "content": text, "sub_items": []}} for name, text in sorted(pages.items())]
    given = json.dumps([{}, {"items": ["Separator", *chapters]}])
    done = subprocess.run([sys.executable, DOCS / "book.py"], input=given, capture_output=True, text=True, timeout=60, check=True)
    made = {item["Chapter"]["name"]: item["Chapter"]["content"] for item in json.loads(done.stdout)["items"][1:]}
    outside = {name for name, text in pages.items() if "](../" in text}
    assert len(outside) > 3 and made.keys() == pages.keys()
    for name, text in made.items():
        assert "](../" not in text, name
        assert name in outside or text == pages[name], name
    assert re.search(r"`examples/compose\.yaml`", made["getting-started.md"])
