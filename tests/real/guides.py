"""Runs blocks of the documents. Each block follows a comment with its name."""

import re

import yaml

from helm import PROJECT


def block(page, name):
    """Returns the text of a block as a reader copies it."""
    text = (PROJECT / "docs" / page).read_text()
    found = re.findall(rf"<!-- {re.escape(name)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1, f"{len(found)} blocks {name} in {page}"
    return found[0]


def manifests(page, name):
    return list(yaml.safe_load_all(block(page, name)))
