"""An agent without knowledge of tokengauge: the OpenAI SDK, configured by environment variables. Prints the result
of its calls."""

import json
import os
import signal

from openai import OpenAI

client = OpenAI()
saw = []
for number in range(int(os.environ["CALLS"])):
    stream = client.chat.completions.create(
        model="gpt-sim",
        messages=[{"role": "user", "content": f"Say something, please: {number}"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    saw.append({"text": len(text), "output": chunks[-1].usage.completion_tokens})
print(json.dumps(saw), flush=True)
# Kubernetes would restart a container that ends.
signal.pause()
