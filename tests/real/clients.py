"""The same call through each vendor's SDK.

A client gets the backend's address and whether to stream. It returns every object of the SDK, the answer's text, and
the reported usage. Each client imports its SDK itself, because importing all of them takes seconds in every pytest
worker."""

import dataclasses
import json
import pathlib
import subprocess

PROMPT = "Tell me of rivers, of the towns beside them and of what the boats carried. " * 20
OUTPUT_TOKENS = 96
TIMEOUT = 60
NODE = pathlib.Path(__file__).parent.parent.parent / ".cache/real/node"


@dataclasses.dataclass
class SdkResult:
    objects: list
    answer: str
    reported_input: int | None
    reported_output: int | None


def plain(value):
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def openai_client(base):
    import openai

    return openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, timeout=TIMEOUT)


def openai_chat(base, streamed):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "seed": 1}
    chat = openai_client(base).chat.completions
    if not streamed:
        whole = chat.create(max_tokens=OUTPUT_TOKENS, **ask)
        answer, usage, objects = whole.choices[0].message.content, whole.usage, [whole]
    else:
        objects = list(
            chat.create(max_tokens=OUTPUT_TOKENS, stream=True, stream_options={"include_usage": True}, **ask)
        )
        answer = "".join(choice.delta.content or "" for chunk in objects for choice in chunk.choices)
        usage = next(chunk.usage for chunk in reversed(objects) if chunk.usage)
    return SdkResult([plain(one) for one in objects], answer, usage.prompt_tokens, usage.completion_tokens)


def openai_responses(base, streamed):
    ask = {"model": "tiny", "input": PROMPT, "temperature": 0, "max_output_tokens": OUTPUT_TOKENS}
    responses = openai_client(base).responses
    if not streamed:
        whole = responses.create(**ask)
        answer, objects = whole.output_text, [whole]
    else:
        objects = list(responses.create(stream=True, **ask))
        answer = "".join(event.delta for event in objects if event.type == "response.output_text.delta")
        whole = objects[-1].response
    return SdkResult([plain(one) for one in objects], answer, whole.usage.input_tokens, whole.usage.output_tokens)


def anthropic_messages(base, streamed):
    import anthropic

    client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=TIMEOUT)
    ask = {"model": "tiny", "max_tokens": OUTPUT_TOKENS, "messages": [{"role": "user", "content": PROMPT}]}
    if not streamed:
        whole = client.messages.create(**ask, extra_body={"temperature": 0})
        objects = [whole]
    else:
        with client.messages.stream(**ask, extra_body={"temperature": 0}) as stream:
            objects = list(stream)
            whole = stream.get_final_message()
    answer = "".join(block.text for block in whole.content if block.type == "text")
    return SdkResult([plain(one) for one in objects], answer, whole.usage.input_tokens, whole.usage.output_tokens)


def gemini(base, streamed):
    import google.genai

    client = google.genai.Client(api_key="none", http_options={"base_url": base, "timeout": TIMEOUT * 1000})
    ask = {"model": "tiny", "contents": PROMPT, "config": {"max_output_tokens": OUTPUT_TOKENS, "temperature": 0}}
    if streamed:
        objects = list(client.models.generate_content_stream(**ask))
    else:
        objects = [client.models.generate_content(**ask)]
    parts = [part for one in objects for candidate in one.candidates or [] for part in candidate.content.parts or []]
    usage = objects[-1].usage_metadata
    answer = "".join(part.text for part in parts if part.text and not part.thought)
    # The SDK keeps response headers, such as a date, next to the body.
    objects = [{key: value for key, value in plain(one).items() if key != "sdk_http_response"} for one in objects]
    output = usage.candidates_token_count + (usage.thoughts_token_count or 0)
    return SdkResult(objects, answer, usage.prompt_token_count, output)


def cohere_v2(base, streamed):
    import cohere

    client = cohere.ClientV2(api_key="none", base_url=base, timeout=TIMEOUT)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": OUTPUT_TOKENS}
    ask["request_options"] = {"max_retries": 0}
    if not streamed:
        whole = client.chat(**ask)
        answer, usage, objects = "".join(part.text for part in whole.message.content), whole.usage, [whole]
    else:
        objects = list(client.chat_stream(**ask))
        answer = "".join(one.delta.message.content.text for one in objects if one.type == "content-delta")
        usage = objects[-1].delta.usage
    objects = [plain(one) for one in objects]
    return SdkResult(objects, answer, int(usage.tokens.input_tokens), int(usage.tokens.output_tokens))


def mistral(base, streamed):
    import mistralai.client

    client = mistralai.client.Mistral(api_key="none", server_url=base, timeout_ms=TIMEOUT * 1000)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": OUTPUT_TOKENS}
    if not streamed:
        whole = client.chat.complete(**ask)
        answer, objects = whole.choices[0].message.content, [whole]
    else:
        with client.chat.stream(**ask) as stream:
            objects = [event.data for event in stream]
        answer = "".join(choice.delta.content or "" for chunk in objects for choice in chunk.choices)
        whole = next(chunk for chunk in reversed(objects) if chunk.usage)
    objects = [plain(one) for one in objects]
    return SdkResult(objects, answer, whole.usage.prompt_tokens, whole.usage.completion_tokens)


def ollama_chat(base, streamed):
    import ollama

    client = ollama.Client(host=base, timeout=TIMEOUT)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "options": {"num_predict": OUTPUT_TOKENS}}
    objects = list(client.chat(stream=True, **ask)) if streamed else [client.chat(**ask)]
    answer = "".join(one.message.content or "" for one in objects)
    last = objects[-1]
    return SdkResult([plain(one) for one in objects], answer, last.prompt_eval_count, last.eval_count)


def bedrock_converse(base, streamed):
    import boto3
    import botocore.config

    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=base,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT),
    )
    ask = {"modelId": "tiny", "messages": [{"role": "user", "content": [{"text": PROMPT}]}]}
    ask["inferenceConfig"] = {"maxTokens": OUTPUT_TOKENS}
    if not streamed:
        whole = client.converse(**ask)
        # Headers and a request id, not part of the body.
        del whole["ResponseMetadata"]
        answer, usage, objects = "".join(part["text"] for part in whole["output"]["message"]["content"]), whole["usage"], [whole]
    else:
        objects = list(client.converse_stream(**ask)["stream"])
        deltas = [one["contentBlockDelta"]["delta"] for one in objects if "contentBlockDelta" in one]
        answer = "".join(delta.get("text", "") for delta in deltas)
        usage = next(one["metadata"]["usage"] for one in objects if "metadata" in one)
    return SdkResult(objects, answer, usage["inputTokens"], usage["outputTokens"])


class JavaScriptError(Exception):
    """An error of an SDK in Node: its class and HTTP status."""


def in_node(sdk):
    def client(base, streamed):
        ask = {"sdk": sdk, "base": base, "streamed": streamed, "prompt": PROMPT, "maxTokens": OUTPUT_TOKENS}
        command = ["node", NODE / "sdk.mjs"]
        done = subprocess.run(command, input=json.dumps(ask), capture_output=True, text=True, timeout=2 * TIMEOUT)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        if "error" in result:
            raise JavaScriptError(result["error"])
        return SdkResult(result["objects"], result["answer"], result["input"], result["output"])

    return client


ENGINE_CLIENTS = {
    "openai chat": openai_chat,
    "openai responses": openai_responses,
    "anthropic": anthropic_messages,
    "openai chat, node": in_node("openai chat"),
    "openai responses, node": in_node("openai responses"),
    "anthropic, node": in_node("anthropic"),
}
SIMULATOR_CLIENTS = {
    "gemini": gemini,
    "cohere": cohere_v2,
    "mistral": mistral,
    "ollama": ollama_chat,
    "bedrock": bedrock_converse,
}
ALL_CLIENTS = ENGINE_CLIENTS | SIMULATOR_CLIENTS


def api_error(name):
    """The exception class of an SDK for an HTTP error of the API, instead of a parse or connection error."""
    import anthropic
    import botocore.exceptions
    import cohere.core
    import google.genai.errors
    import mistralai.client.errors
    import ollama
    import openai

    return {
        "openai chat": openai.APIStatusError,
        "openai responses": openai.APIStatusError,
        "anthropic": anthropic.APIStatusError,
        "openai chat, node": JavaScriptError,
        "openai responses, node": JavaScriptError,
        "anthropic, node": JavaScriptError,
        "gemini": google.genai.errors.ServerError,
        "cohere": cohere.core.ApiError,
        "mistral": mistralai.client.errors.SDKError,
        "ollama": ollama.ResponseError,
        "bedrock": botocore.exceptions.ClientError,
    }[name]
