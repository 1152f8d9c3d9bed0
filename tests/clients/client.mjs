// The TypeScript client of the second generation as a test drives it: see conversation.mjs.
// Usage: client.mjs modern|legacy URL
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { converse, credential, found, watchedFetch } from "./conversation.mjs";

const [era, url] = process.argv.slice(2);
const { fetch, stream } = watchedFetch();
const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
client.setNotificationHandler("notifications/tools/list_changed", () => found("changed"));
await client.connect(
  new StreamableHTTPClientTransport(new URL(url), { fetch, requestInit: { headers: credential } }),
);
found("connected", {
  version: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion()?.name,
});

await converse({
  list: () => client.listTools(),
  call: (name, given, signal) => client.callTool({ name, arguments: given }, { signal }),
  watch: async () => {
    if (era === "legacy") return stream;
    return (await client.listen({ toolsListChanged: true })).honoredFilter;
  },
  close: () => client.close(),
});
