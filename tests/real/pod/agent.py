"""An agent that knows nothing of tokengauge: the OpenAI SDK with what its environment says. Prints what it saw."""

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
# A container that ends is started again.
signal.pause()
