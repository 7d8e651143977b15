"""Helm and the schemas of Kubernetes in a separate Python environment: one request and one answer per line, as JSON."""

import json
import sys

import helm_python as helm
import jsonpatch
import jsonschema
import kubernetes_validate


def render(chart, values, name="tg", namespace="llm"):
    with helm.Chart.load(chart) as loaded:
        return loaded.render(values, name=name, namespace=namespace)


def render_there(chart, values, server, name="tg", namespace="llm"):
    """Renders with existing objects that `lookup` can find."""
    with helm.Config(kube_apiserver=server, namespace=namespace) as config, helm.Chart.load(chart) as loaded:
        return config.render(loaded, values, name=name, namespace=namespace, is_upgrade=True)


def install(chart, values, name="tg", namespace="llm"):
    """Renders like `helm install` without a cluster: values checked by the schema, hooks separate, NOTES."""
    with helm.Config(storage_driver="memory", namespace=namespace) as config:
        return config.install(chart, name, values, dry_run="client")


def lint(chart, values, kube_version):
    return helm.lint(chart, values, strict=True, kube_version=kube_version)


def set(expression):
    """Parses an expression as `--set` does."""
    return helm.parse_set_string(expression)


def values_from_yaml(text):
    return helm.values_from_yaml(text)


def package(chart, destination):
    return helm.package(chart, destination=destination)


def validate(document, version):
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return "no schema"
    except kubernetes_validate.ValidationError as error:
        return f"{'/'.join(str(part) for part in error.path)}: {error.message[:500]}"
    return None


def complaints(document, schema):
    found = jsonschema.Draft7Validator(schema).iter_errors(document)
    return [f"{error.json_path}: {error.message[:500]}" for error in found]


def patched(document, patch):
    return jsonpatch.apply_patch(document, patch)


for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"done": globals()[request.pop("do")](**request)}
    except helm.HelmError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer), flush=True)
