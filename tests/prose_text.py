"""Finds the text that people read in the files of the project, for tests/prose."""

import dataclasses
import json
import re

TESTS = re.compile(r"^(tests|benches|fuzz|crates/test-support)/|/tests/|/tests\.rs$")
CHART = re.compile(r"^(helm|dashboards|examples)/")
CONFIGURATION = re.compile(r"^proxy-config\.")
PAGE = re.compile(r"^crates/(admin|html)/src/.*\.(js|html)$")
# Doc comments that users read: `--help`, the help of metrics, and descriptions of the API.
SHOWN = re.compile(r"^src/cli|^crates/telemetry/src/export/names/|^crates/admin/src/api/")
# A module of unit tests in a file of the program.
UNIT_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[.*\]\n)*mod \w+ \{\n.*?^\}", re.M | re.S)
# A line of settings in a text.
SETTING = re.compile(r" *(?:[\w.\"-]+ = |\[+[\w.]+\]+$)(?:.*? # +(.*))?")


@dataclasses.dataclass
class Block:
    """A paragraph, list item, heading or table cell: its lines, each with its number in the file."""

    area: str
    kind: str
    lines: list

    def __post_init__(self):
        self.lines = [(number, " ".join(text.split())) for number, text in self.lines]
        self.text = " ".join(text for _, text in self.lines)

    def line(self, offset):
        for number, text in self.lines:
            offset -= len(text) + 1
            if offset < 0:
                return number
        return self.lines[-1][0]

    def sentences(self):
        """Returns the start and end of each sentence. Code, links and quotations count as words."""
        masked = re.sub(r"`[^`]*`|\]\([^)]*\)|\{[^{}]*\}|\bhttps?://\S+", lambda found: "X" * len(found[0]), self.text)
        ends = [found.end() for found in re.finditer(r"(?<!e\.g)(?<!i\.e)[.!?][\"')*_]* +(?![a-z]+[ ,.;)])", masked)]
        spans = zip([0, *ends], [*ends, len(masked)])
        return [(start, end, words(masked[start:end])) for start, end in spans if start < end]


def words(text):
    return sum(any(map(str.isalnum, word)) for word in text.split())


def blocks(area, lines):
    """Joins lines of Markdown to blocks, and leaves out blocks of code."""
    block, fenced = [], False
    for number, line in [*lines, (0, "")]:
        text = re.sub(r"^> ?", "", line.strip())
        fence = text.startswith(("```", "~~~"))
        item = re.match(r"(?:[-*+•]|\d+[.)]) +(?=\S)", text)
        heading = re.match(r"#{1,6} +", text)
        setting = SETTING.match(text)
        alone = re.search(r"\S {3,}\S", text)  # a line of columns
        if block and (fence or fenced or item or heading or alone or not text or setting or text.startswith("|")):
            yield Block(area, "text", block)
            block = []
        fenced ^= fence
        if fence or fenced or not text or setting or re.fullmatch(r"[-|: =*]+", text):
            continue
        if text.startswith("|"):
            cells = re.split(r"(?<!\\)\|", text.strip("|"))
            yield from (Block(area, "cell", [(number, cell)]) for cell in cells if cell.strip())
        elif heading or alone:
            yield Block(area, "heading" if heading else "text", [(number, text[heading.end() if heading else 0:])])
        else:
            block.append((number, text[item.end():] if item else text))


# --- Extraction ---

COMMENTS = r"(?P<comment>//[^\n]*|/\*.*?\*/)"
SYNTAX = {
    "rust": COMMENTS + r"""|(?<!\w)b?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)|b?"(?P<string>(?:[^"\\]|\\.)*)"
        |'(?:[^'\\\n]|\\[^'\n]+|\\')'""",
    "script": COMMENTS + r"""|"(?P<string>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'
        |`(?P<raw>(?:[^`\\$]|\\.|\$(?!\{)|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\})*)`
        |(?:(?<=[(,=:!\[])|(?<=[=:?&|(,]\ ))/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/""",
    "python": r'''[rbf]*"""(?P<doc>.*?)"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?P<comment>\#[^\n]*)''',
    "hash": r'''"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?<!\S)(?P<comment>\#[^\n]*)''',
    "dashes": r"(?P<comment>--[^\n]*|/\*.*?\*/)|'[^'\n]*'",
    "helm": r"\{\{-?\ ?/\*(?P<doc>.*?)\*/|(?m:^\s*)(?P<comment>\#[^\n]*)|\"(?P<string>(?:[^\"\\\n]|\\.)*)\"|`(?P<raw>[^`\n]*)`",
}
SYNTAX = {name: re.compile(pattern, re.S | re.X) for name, pattern in SYNTAX.items()}
SUFFIXES = {
    "rs": "rust", "go": "rust", "js": "script", "mjs": "script", "cjs": "script", "ts": "script", "css": "script",
    "py": "python", "toml": "hash", "yaml": "hash", "yml": "hash", "sh": "hash", "conf": "hash", "sql": "dashes", "lua": "dashes",
}
MARKER = re.compile(r"^(?://[/!]?|/\*+|#+|--+|\*+(?=\s|$))|\*/$")
# Statements of SQL are strings, but not sentences.
STATEMENT = re.compile(r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|PRAGMA|DROP|FROM|WHERE|ORDER BY|JOIN|AS \w+)\b")
KEYS = r"(?:summary|description|title|message|text|content|x-reason|x-must)"
YAML_VALUE = re.compile(rf"^( *)(?:- )?{KEYS}: +(?:[|>][-+]?\n((?:\1 +.*\n|\n)+)|(?![|>])(.+))", re.M)
JSON_VALUE = re.compile(rf'"{KEYS}": *("(?:[^"\\]|\\.)*")')
INLINE = re.compile(r"</?(?:a|b|code|em|i|kbd|small|strong)\b(?![^>]*(?:title|label)=)[^>]*>")
HTML_TEXT = re.compile(r'>([^<>]+)<|\b(?:title|aria-label|placeholder|alt)="([^"]*)"')


def numbered(source, start, text):
    """Returns the lines of a part of the source, each with its number. An escaped line end is also one."""
    first = source.count("\n", 0, start) + 1
    return [(first + n, part) for n, line in enumerate(text.split("\n")) for part in re.split(r"\\n", line.removesuffix("\\"))]


def syntax(path, source):
    first = source.split("\n", 1)[0]
    name = path.rpartition("/")[2]
    if path.startswith("helm/") and (path.endswith(".tpl") or "/templates/" in path):
        return "helm"
    if first.startswith("#!"):
        return "python" if "python" in first else "hash"
    return "hash" if name in ("Makefile", "Dockerfile") else SUFFIXES.get(name.rpartition(".")[2])


def commented(number, line):
    """Returns the line of a comment without its marker. Indented commands are blank lines, and so are settings that
    are commented out, except for their own comments."""
    text, indent = MARKER.sub("", line.strip()), " " * 5
    if line.startswith("#"):
        if setting := SETTING.match(text):
            return [(number, ""), (number, setting[1] or "")]
        text, indent = re.sub(r"^ *# ", "", text), " " * 3
    return [(number, "" if text.startswith(indent) else text)]


def code(path, source, language):
    """Yields comments, and the strings that users see."""
    tests = [found.span() for found in UNIT_TESTS.finditer(source)] if language == "rust" else []
    shown = not TESTS.search(path) and (language in ("rust", "helm") or PAGE.match(path))
    group, previous, line, counted = [], None, 1, 0
    for found in SYNTAX[language].finditer(source):
        kind = found.lastgroup
        if not kind:
            continue
        start = found.start(kind)
        line, counted = line + source.count("\n", counted, start), start
        in_tests = any(begin <= start < end for begin, end in tests)
        text, area = found[kind], "tests" if in_tests else "comments"
        if kind == "comment" and not text.startswith("#!"):
            whole = not source[source.rfind("\n", 0, start) + 1:start].strip()
            marker = re.match(r"///?|//!|/\*|##?|--", text)[0]
            if marker == "##" or marker == "///" and SHOWN.match(path):
                area = "messages"
            if group and not (whole and previous == (line - 1, marker, area)):
                yield from blocks(previous[2], group)
                group = []
            previous = (line + text.count("\n"), marker, area)
            group += [pair for n, part in enumerate(text.split("\n")) for pair in commented(line + n, part)]
        elif kind == "doc" and (language == "helm" or not source[source.rfind("\n", 0, found.start()) + 1:found.start()].strip()):
            yield from blocks(area, numbered(source, start, text))
        elif kind in ("string", "raw", "single") and not in_tests and shown:
            text = re.sub(r"\$?\{[^{}]*\}", "{}", text.replace('\\"', '"'))
            if len(re.findall(r"[A-Za-z]{2,}", text)) > 2 and " " in text and not STATEMENT.search(text):
                yield from blocks("page" if language == "script" else "messages", numbered(source, start, text))
    if group:
        yield from blocks(previous[2], group)


def template(source):
    """Returns the lines of a template of plain text. Indented lines are commands."""
    text = re.sub(r"\{\{-? *(?:if|else|end|with|range|define)\b.*?\}\}|\{\{-? *(?:\$\w+ :?=|/\*).*?\}\}", "", source)
    lines = re.sub(r"\{\{.*?\}\}", "X", text).split("\n")
    return [(number, "" if line.startswith("     ") else line) for number, line in enumerate(lines, 1)]


def read(path, source):
    """Yields everything in a file that people read, with the area of its kind of file."""
    if path.endswith(".md"):
        yield from blocks("docs", enumerate(source.split("\n"), 1))
    elif path.endswith("NOTES.txt"):
        yield from blocks("chart", template(source))
    elif path.endswith(".json"):
        for found in JSON_VALUE.finditer(source):
            number = source.count("\n", 0, found.start()) + 1
            yield from blocks("configuration", [(number, line) for line in json.loads(found[1]).split("\n")])
    elif path.endswith((".html", ".svg")):
        for found in HTML_TEXT.finditer(INLINE.sub(lambda tag: " " * len(tag[0]), source)):
            yield from blocks("page", numbered(source, found.start(found.lastindex), found[found.lastindex]))
    elif language := syntax(path, source):
        yield from code(path, source, language)
        if path.endswith((".yaml", ".yml")):
            for found in YAML_VALUE.finditer(source):
                yield from blocks("chart", numbered(source, found.start(found.lastindex), found[found.lastindex].strip("\"'")))


def extracted(path, source):
    """Yields everything in a file that people read."""
    areas = (("tests", TESTS), ("configuration", CONFIGURATION), ("chart", CHART))
    area = next((area for area, pattern in areas if pattern.search(path)), None)
    for block in read(path, source):
        if area and (block.area != "docs" or area == "tests"):
            block.area = area
        yield block
