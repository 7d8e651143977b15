"""A conversation of two turns by an agent of one framework: `conversation.py FRAMEWORK ADDRESS SESSION`.

Prints the usage that the framework reports as JSON. Each framework names the session as its users do. If SESSION is
`-`, it names none."""

import asyncio
import json
import sys

QUESTIONS = ("What do boats carry on this river?", "And in winter?")


async def openai_agents(base, session):
    import openai
    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none")
    settings = ModelSettings(metadata={"session_id": session} if session else None)
    agent = Agent(name="guide", model=OpenAIResponsesModel("gpt-5.1", client), model_settings=settings)
    history, used = [], []
    for question in QUESTIONS:
        result = Runner.run_streamed(agent, [*history, {"role": "user", "content": question}])
        async for _ in result.stream_events():
            pass
        history = result.to_input_list()
        usage = result.context_wrapper.usage
        used.append((usage.input_tokens, usage.output_tokens))
    return used


async def pydantic_ai(base, session):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("gpt-4.1-mini", provider=OpenAIProvider(base_url=f"{base}/v1", api_key="none"))
    settings = {"extra_headers": {"x-session-id": session}, "openai_user": "ada"} if session else {}
    agent = Agent(model, model_settings=settings)
    history, used = [], []
    for question in QUESTIONS:
        async with agent.run_stream(question, message_history=history) as result:
            async for _ in result.stream_text():
                pass
            history = result.all_messages()
            usage = result.usage() if callable(result.usage) else result.usage
            used.append((usage.input_tokens, usage.output_tokens))
    return used


async def langchain(base, session):
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph

    headers = {"x-tokengauge-agent": "river-guide", "x-tokengauge-experiment": "prompts/short"}
    model = ChatOpenAI(
        model="gpt-4.1-mini", base_url=f"{base}/v1", api_key="none", streaming=True, stream_usage=True,
        default_headers=headers | ({"baggage": f"session.id={session}"} if session else {}),
    )

    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    agent = graph.compile()
    messages, used = [], []
    for question in QUESTIONS:
        state = await agent.ainvoke({"messages": [*messages, ("user", question)]})
        messages = state["messages"]
        usage = messages[-1].usage_metadata
        used.append((usage["input_tokens"], usage["output_tokens"]))
    return used


if __name__ == "__main__":
    framework, base, session = sys.argv[1:]
    session = session if session != "-" else None
    used = asyncio.run(globals()[framework](base, session))
    print(json.dumps({"calls": len(used), "input": sum(one for one, _ in used), "output": sum(one for _, one in used)}))
