"""Schemas of CustomResourceDefinitions in these folders, for kinds whose schemas no package has."""

import copy

import yaml


def strict(schema):
    """Returns a CRD's schema that refuses unknown fields, like `kubectl apply` with strict validation."""
    if not isinstance(schema, dict):
        return [strict(one) for one in schema] if isinstance(schema, list) else schema
    schema = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def schemas(folder):
    crds = [crd for file in folder.glob("*.yaml") for crd in yaml.safe_load_all(file.read_text())]
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    names = {"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, "namespace": {"type": "string"}}
    found = {}
    for crd in crds:
        for version in crd["spec"]["versions"]:
            schema = copy.deepcopy(version["schema"]["openAPIV3Schema"])
            # The API server checks the metadata, not the CRD.
            schema["properties"]["metadata"] = {"type": "object", "properties": {**names, "annotations": texts, "labels": texts}, "required": ["name"]}
            schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
            found[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = strict(schema)
    return found
