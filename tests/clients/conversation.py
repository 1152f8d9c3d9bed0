"""What the Python clients have in common: commands from stdin, one JSON line for each finding.

Commands: {"do":"list"}, {"do":"call","name":…,"arguments":…}, {"do":"cancel"} for the call that runs, {"do":"watch"}.
Never: a judgement; what is seen is printed, and the test judges.
"""

import json
import os
import sys

import anyio


def found(what, **details):
    """Prints one finding."""
    print(json.dumps({"found": what, **details}, ensure_ascii=False), flush=True)


def plain(model):
    """What a client made of a message, as JSON again."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def credential():
    return {"Authorization": "Bearer " + os.environ["SWITCHBOARD_API_KEY"]}


async def converse(actions):
    """Does what stdin says until it ends. A call runs beside the commands that follow it."""
    lines = anyio.wrap_file(sys.stdin)
    async with anyio.create_task_group() as tasks:
        async for line in lines:
            command = json.loads(line)
            match command.pop("do"):
                case "list":
                    found("tools", tools=[plain(tool) for tool in (await actions.list()).tools])
                case "call":
                    tasks.start_soon(call, actions, command["name"], command["arguments"])
                case "cancel":
                    await actions.cancel()
                case "watch":
                    await actions.watch(tasks)
                    found("watching")
                case other:
                    raise ValueError(f"no command: {other}")
        tasks.cancel_scope.cancel()


async def call(actions, name, arguments):
    try:
        result = await actions.call(name, arguments)
    except actions.error as error:
        found("error", code=error.error.code, message=error.error.message)
    else:
        # A call that was cancelled has nothing to show.
        found("cancelled") if result is None else found("result", result=plain(result))
