"""The official Python client 1.30.0 as a test drives it: see conversation.py.

Usage: python-1.30.0.py http URL
       python-1.30.0.py stdio PROGRAM [ARGUMENT…]
"""

import os
import sys
from contextlib import asynccontextmanager

import anyio
import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError

from conversation import converse, credential, found


class Actions:
    error = McpError

    def __init__(self, session, stream):
        self.session, self.stream = session, stream
        self.running = self.request = None

    async def list(self):
        return await self.session.list_tools()

    async def call(self, name, arguments):
        # This client leaves it to its user to tell the server that a request is given up, and
        # says nowhere else which id it gave the request.
        self.request = self.session._request_id
        with anyio.CancelScope() as self.running:
            return await self.session.call_tool(name, arguments)
        return None

    async def cancel(self):
        params = types.CancelledNotificationParams(requestId=self.request, reason="no more")
        notification = types.CancelledNotification(params=params)
        await self.session.send_notification(types.ClientNotification(notification))
        self.running.cancel()

    async def watch(self, _tasks):
        await self.stream.wait()


@asynccontextmanager
async def over_http(stream, url):
    async def opened(response):
        if response.request.method == "GET" and response.status_code == 200:
            stream.set()

    hooks = {"response": [opened]}
    timeout = httpx.Timeout(30, read=300)
    async with httpx.AsyncClient(headers=credential(), event_hooks=hooks, timeout=timeout) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, _):
            yield read, write


@asynccontextmanager
async def over_stdio(stream, program, *arguments):
    # On a pipe, notifications have the same way as answers: there is no stream to wait for.
    stream.set()
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as streams:
        yield streams


async def main(transport, *arguments):
    async def heard(message):
        if isinstance(message, types.ServerNotification):
            if isinstance(message.root, types.ToolListChangedNotification):
                found("changed")

    stream = anyio.Event()
    opened = over_http if transport == "http" else over_stdio
    async with opened(stream, *arguments) as (read, write):
        async with ClientSession(read, write, message_handler=heard) as session:
            greeting = await session.initialize()
            found("connected", version=greeting.protocolVersion, server=greeting.serverInfo.name)
            await converse(Actions(session, stream))


anyio.run(main, *sys.argv[1:])
