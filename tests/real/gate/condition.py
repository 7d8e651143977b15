"""Evaluates conditions like Argo Rollouts, in a separate Python environment: each input line is [condition, result]
as JSON, each output line its value."""

import json
import sys

import golem

for line in sys.stdin:
    condition, result = json.loads(line)
    # JSON lists, numbers and strings are also expr-lang literals.
    value = golem.Engine().eval(f"let result = {json.dumps(result)}; {condition}")
    print(json.dumps(value), flush=True)
