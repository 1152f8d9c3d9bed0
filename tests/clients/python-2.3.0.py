"""The official Python client 2.3.0 as a test drives it: see conversation.py.

Usage: python-2.3.0.py auto|legacy URL
"""

import sys

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ToolListChangedNotification

from conversation import converse, credential, found


class Actions:
    error = MCPError

    def __init__(self, client, modern, stream):
        self.client, self.modern, self.stream = client, modern, stream
        self.running = None

    async def list(self):
        return await self.client.list_tools()

    async def call(self, name, arguments):
        with anyio.CancelScope() as self.running:
            return await self.client.call_tool(name, arguments)
        return None

    async def cancel(self):
        self.running.cancel()

    async def watch(self, tasks):
        if self.modern:
            await tasks.start(self.listen)
        else:
            await self.stream.wait()

    async def listen(self, task_status):
        async with self.client.listen(tools_list_changed=True) as events:
            task_status.started()
            async for _ in events:
                found("changed")


async def main(mode, url):
    stream = anyio.Event()

    async def opened(response):
        if response.request.method == "GET" and response.status_code == 200:
            stream.set()

    async def heard(message):
        # What a listener hears comes here as well.
        if mode == "legacy" and isinstance(message, ToolListChangedNotification):
            found("changed")

    hooks = {"response": [opened]}
    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=credential(), event_hooks=hooks, timeout=timeout) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, message_handler=heard) as client:
            server = client.server_info and client.server_info.name
            found("connected", version=client.protocol_version, server=server)
            await converse(Actions(client, mode != "legacy", stream))


anyio.run(main, *sys.argv[1:])
