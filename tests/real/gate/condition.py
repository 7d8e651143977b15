"""Conditions as Argo Rollouts evaluates them, in a Python of its own: [condition, result] as JSON a line, its value a line."""

import json
import sys

import golem

for line in sys.stdin:
    condition, result = json.loads(line)
    # JSON's lists, numbers and strings are those of expr-lang.
    value = golem.Engine().eval(f"let result = {json.dumps(result)}; {condition}")
    print(json.dumps(value), flush=True)
