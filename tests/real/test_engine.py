"""A real engine and the vendors' SDKs: with the proxy between them everything is as without it."""

import openai


def test_the_engine_streams(engine):
    client = openai.OpenAI(base_url=f"{engine}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        temperature=0,
        max_tokens=48,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert len(chunks) > 40
    assert chunks[-1].usage.completion_tokens == 48
