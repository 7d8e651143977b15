"""Tests of tests/prose: each rule with its examples, the extraction of text from each kind of file, and the limits."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("prose", str(pathlib.Path(__file__).with_name("prose")))
prose = importlib.util.module_from_spec(importlib.util.spec_from_loader("prose", LOADER))
sys.modules["prose"] = prose
LOADER.exec_module(prose)

SETTINGS = prose.Settings(prose.SETTINGS.read_text())
# Breaks the rule "archaic", and no other one.
LINE = "Replies are sent anew"
TWO = "Replies are sent\nanew"

# A file with the sentence in a place that people read, and in places that they do not read.
FILES = [
    ("docs", "docs/a.md", f"- {TWO}\n```\n{LINE}\n```\n"),
    ("docs", "docs/a.md", f"| a | {LINE} |\n|---|---|\n"),
    ("comments", "src/a.rs", f"let a = ('\"', '\\''); // {LINE}"),
    ("comments", "src/a.rs", "/// Replies are sent\n/// anew"),
    ("comments", "crates/admin/src/page/a.js", f"/** {TWO} */"),
    ("comments", "crates/store/src/a.sql", f"-- {LINE}\nSELECT 'a';"),
    ("comments", "Cargo.toml", f"a = 1 # {LINE}"),
    ("messages", "src/cli/a.rs", "/// Replies are sent\n/// anew"),
    ("messages", "src/a.rs", 'fail("Replies are sent \\\n    anew: {}")'),
    ("messages", "src/a.rs", f'fail(r#"{LINE}"#); query("SELECT {LINE}")'),
    ("messages", "Makefile", f"a: b ## {LINE}"),
    ("configuration", "proxy-config.toml", f"# key = 1 # {LINE}"),
    ("configuration", "proxy-config.schema.json", json.dumps({"description": TWO, "default": LINE})),
    ("chart", "dashboards/a.json", json.dumps({"title": LINE, "expr": LINE})),
    ("chart", "helm/a/values.yaml", f"# {LINE}\n#   run {LINE}\na: {LINE}"),
    ("chart", "helm/a/Chart.yaml", f'description: "{LINE}"\nname: {LINE}\n'),
    ("chart", "helm/a/files/rules.yaml", f"a:\n  description: >-\n    Replies are sent\n    anew\n  expr: {LINE}\n"),
    ("chart", "helm/a/templates/_a.tpl", f"{{{{- /* {TWO} */}}}}"),
    ("chart", "helm/a/templates/_a.tpl", f'{{{{ fail "{LINE}" }}}}'),
    ("chart", "helm/a/templates/NOTES.txt", f"{TWO} {{{{ .Values.a }}}}\n\n     {LINE}\n"),
    ("page", "crates/admin/src/page/a.js", f"say(`{LINE} ${{a ? `b` : 1}}`)"),
    ("page", "crates/admin/src/page/a.html", f"<p>Replies are <b>sent</b>\nanew</p><i class='{LINE}'>"),
    ("page", "crates/admin/src/page/a.html", f'<a title="{LINE}">a</a>'),
    ("tests", "src/a.rs", f'#[cfg(test)]\nmod tests {{\n    // {LINE}\n    fail("{LINE}")\n}}\n'),
    ("tests", "tests/a.rs", f'// {LINE}\nfail("{LINE}")'),
    ("tests", "tests/a.py", f'"""{TWO}"""\nfail("{LINE}")'),
    ("tests", "tests/a.py", f'fail("# {LINE}")  # {LINE}'),
    ("tests", "tests/a", f"#!/bin/sh\necho '# {LINE}' # {LINE}"),
]

# Texts just above and just below each size.
SIZES = [
    ("long-sentence", "Word " * 31, "Word " * 30),
    ("long-sentence", "Word " * 30 + "`a b`.", "Word " * 29 + "`a b`. [A b](c.md). E.g. d."),
    ("long-cell", f"| {'word ' * 31}|", f"| {'word ' * 30}|"),
    ("long-paragraph", "Short words.\n" * 50, "Short words.\n" * 25 + "\n" + "Short words.\n" * 25),
    ("long-page", "Word.\n\n" * 81, "Word.\n\n" * 80),
]


def rules(path, source):
    return [place.rule for place in prose.places(path, source, SETTINGS)]


class Prose(unittest.TestCase):
    def test_each_rule_finds_its_bad_example_only(self):
        for rule, _ in SETTINGS.rules:
            with self.subTest(rule["name"]):
                form = {"cell": "| {} |", "heading": "# {}"}.get(rule.get("in"), "{}")
                self.assertIn(rule["name"], rules("docs/a.md", form.format(rule["bad"])))
                self.assertEqual(rules("docs/a.md", form.format(rule["good"])), [])

    def test_sizes(self):
        for rule, bad, good in SIZES:
            with self.subTest(rule):
                self.assertEqual(rules("docs/a.md", bad), [rule])
                self.assertEqual(rules("docs/a.md", good), [])
        self.assertEqual(rules("src/a.rs", "// " + "word " * 31), [])

    def test_references_may_be_long(self):
        pages = prose.references("# Guides\n- [A](a.md)\n# Reference\n- [B](b.md)\n")
        self.assertEqual(pages - prose.GENERATED, {"docs/b.md", "docs/runbooks.md"})
        self.assertEqual([*prose.places("docs/b.md", "Word.\n\n" * 81, SETTINGS, pages)], [])

    def test_text_of_each_kind_of_file(self):
        for area, path, source in FILES:
            with self.subTest(path, source=source):
                found = [place for place in prose.places(path, source, SETTINGS) if place.rule == "archaic"]
                self.assertEqual([place.area for place in found], [area])

    def test_a_place_has_its_lines_and_its_sentence(self):
        [place] = prose.places("docs/a.md", "# A\n\nFirst sentence. Replies are\nsent anew. Last sentence.\n", SETTINGS)
        self.assertEqual((place.first, place.last, place.text), (4, 4, "Replies are sent anew."))

    def test_an_area_must_have_its_limit(self):
        limits = dict.fromkeys(prose.AREAS, 2)
        for count, word in ((1, "lower"), (2, None), (3, "limit is 2")):
            messages = [*prose.verdicts({**limits, "docs": count}, limits)]
            self.assertEqual(len(messages), word is not None)
            self.assertIn(word or "", "".join(messages))

    def test_limits_are_only_lowered(self):
        limits = dict.fromkeys(prose.AREAS, 2)
        text = "docs = 2\npage = 2\n"
        self.assertEqual(prose.lowered(text, {**limits, "docs": 1, "page": 3}, limits), "docs = 1\npage = 2\n")

    def test_exceptions_are_for_one_text_of_one_file(self):
        place = prose.Place("a.md", 1, 1, "docs", "archaic", "", LINE)
        other = prose.Place("a.md", 2, 2, "docs", "archaic", "", "Mend it")
        exceptions = [{"file": "a.md", "text": "sent anew"}, {"file": "b.md", "text": "sent anew"}]
        self.assertEqual(prose.without_exceptions([place, other], exceptions), ([other], exceptions[1:]))


if __name__ == "__main__":
    unittest.main()
