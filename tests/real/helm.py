"""The chart rendered by Helm's own engine, and schema checks of the result."""

import json
import pathlib
import subprocess

import yaml

PROJECT = pathlib.Path(__file__).parent.parent.parent
CHART = PROJECT / "helm/tokengauge"
PYTHON = PROJECT / ".cache/real/kubernetes/bin/python"
KINDS = PROJECT / ".cache/real/kinds"
HERE = pathlib.Path(__file__).parent
# Kinds that are not part of Kubernetes.
FOREIGN = ("monitoring.coreos.com/", "cert-manager.io/")


class Refused(Exception):
    """Helm's error message."""


class Helm:
    """A Helm process that handles one request at a time."""

    def __init__(self):
        command = [PYTHON, HERE / "chart/worker.py"]
        self.worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, what, **arguments):
        self.worker.stdin.write(json.dumps({"do": what, **arguments}, default=str) + "\n")
        self.worker.stdin.flush()
        line = self.worker.stdout.readline()
        assert line, f"the worker has ended with {self.worker.wait()}"
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["done"]

    def values(self, *files):
        """Merges files of values as `-f` does; later files override earlier ones."""
        values = {}
        for file in files:
            values = merged(values, self.do("values_from_yaml", text=pathlib.Path(file).read_text()))
        return values

    def texts(self, values, **release):
        rendered = self.do("render", chart=CHART, values=values, **release)
        texts = {path.removeprefix("tokengauge/templates/"): text for path, text in rendered.items()}
        return {path: text for path, text in sorted(texts.items()) if text.strip() and path.endswith(".yaml")}

    def documents(self, values, **release):
        texts = self.texts(values, **release).values()
        return [document for text in texts for document in yaml.safe_load_all(text) if document]

    def close(self):
        self.worker.stdin.close()
        self.worker.wait(timeout=20)


def merged(below, above):
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {key: merged(below[key], above[key]) if key in below and key in above else {**below, **above}[key] for key in {**below, **above}}


def one(documents, kind, name=None):
    found = [one for one in documents if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


def is_foreign(document):
    return document["apiVersion"].startswith(FOREIGN)


def foreign_complaints(folder, documents):
    """Returns the errors of documents by the schemas and types of upstream's CRDs."""
    folder.mkdir(exist_ok=True)
    for part in ("kinds.mjs", "tsconfig.json"):
        (folder / part).write_text((HERE / "kinds" / part).read_text())
    (folder / "node_modules").symlink_to(KINDS / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "documents.json").write_text(json.dumps(documents))
    checked = subprocess.run(["node", "kinds.mjs"], cwd=folder, capture_output=True, text=True, timeout=600)
    assert checked.returncode == 0, checked.stderr
    typed = ["node", "node_modules/typescript/bin/tsc", "--project", "."]
    typed = subprocess.run(typed, cwd=folder, capture_output=True, text=True, timeout=300)
    return checked.stdout + typed.stdout + typed.stderr
