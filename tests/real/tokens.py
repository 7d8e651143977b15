"""o200k_base counts by another implementation than the tested one."""

import json
import pathlib
import subprocess

NODE = pathlib.Path(__file__).parent.parent.parent / ".cache/real/node"


def counts(texts):
    command = ["node", NODE / "count_tokens.mjs"]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def count(text):
    return counts([text])[0]
