// The TypeScript client of the first generation as a test drives it: see conversation.mjs.
// Usage: sdk.mjs http URL
//        sdk.mjs stdio PROGRAM [ARGUMENT…]
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { converse, credential, found, watchedFetch } from "./conversation.mjs";

const [kind, target, ...args] = process.argv.slice(2);
const { fetch, stream } = watchedFetch();
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(target), { fetch, requestInit: { headers: credential } })
    : new StdioClientTransport({ command: target, args, env: process.env });
const client = new Client({ name: "test", version: "1" });
client.setNotificationHandler(ToolListChangedNotificationSchema, () => found("changed"));
// The transport is told which revision was agreed on; the client itself does not say.
let version;
transport.setProtocolVersion = ((tell) => (agreed) => {
  version = agreed;
  tell?.call(transport, agreed);
})(transport.setProtocolVersion);
await client.connect(transport);
found("connected", { version, server: client.getServerVersion()?.name });

await converse({
  list: () => client.listTools(),
  call: (name, given, signal) => client.callTool({ name, arguments: given }, undefined, { signal }),
  // On a pipe, notifications have the same way as answers: there is no stream to wait for.
  watch: () => (kind === "http" ? stream : undefined),
  close: () => client.close(),
});
