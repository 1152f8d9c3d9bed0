/** The configuration of MCP clients, as each of them wants it. */
import { shell } from './snippets.js';

/** Stands where the key has to be. */
export const PLACEHOLDER = 'sb_…';

/** @type {{id: string, name: string, file?: string, transports: ('http' | 'stdio')[]}[]} */
export const CLIENTS = [
  { id: 'claude-code', name: 'Claude Code', transports: ['http', 'stdio'] },
  { id: 'claude-desktop', name: 'Claude Desktop', file: 'claude_desktop_config.json', transports: ['stdio'] },
  { id: 'cursor', name: 'Cursor', file: '~/.cursor/mcp.json', transports: ['http', 'stdio'] },
  { id: 'vscode', name: 'VS Code', file: '.vscode/mcp.json', transports: ['http', 'stdio'] },
  { id: 'codex', name: 'Codex', file: '~/.codex/config.toml', transports: ['http', 'stdio'] },
  { id: 'opencode', name: 'OpenCode', file: 'opencode.json', transports: ['http', 'stdio'] },
  { id: 'python', name: 'Python', transports: ['http'] },
  { id: 'typescript', name: 'TypeScript', transports: ['http'] },
  { id: 'curl', name: 'curl', transports: ['http'] },
];

/** @typedef {{origin: string, endpoint: string, scope: 'all' | 'device' | 'npc', subject: string, key: string | undefined, stdio: boolean}} Target */

/** @param {string} client @param {Target} target */
export function configuration(client, target) {
  const url = target.origin + target.endpoint;
  const key = target.key ?? PLACEHOLDER;
  const bearer = `Bearer ${key}`;
  const args = ['stdio', ...(target.scope === 'all' ? ['--all'] : [`--${target.scope}`, target.subject])];
  const env = { SWITCHBOARD_URL: target.origin, SWITCHBOARD_API_KEY: key };
  const stdio = { command: 'switchboard', args, env };
  const json = (/** @type {unknown} */ value) => JSON.stringify(value, null, 2);
  switch (client) {
    case 'claude-code': return target.stdio
      ? `claude mcp add switchboard \\\n  --env SWITCHBOARD_URL=${shell(target.origin)} \\\n  --env SWITCHBOARD_API_KEY=${key} \\\n  -- switchboard ${args.map(shell).join(' ')}`
      : `claude mcp add --transport http switchboard \\\n  ${shell(url)} \\\n  --header "Authorization: ${bearer}"`;
    case 'claude-desktop': return json({ mcpServers: { switchboard: stdio } });
    case 'cursor': return json({ mcpServers: { switchboard: target.stdio ? stdio : { url, headers: { Authorization: bearer } } } });
    case 'vscode': return json({ servers: { switchboard: target.stdio ? { type: 'stdio', ...stdio } : { type: 'http', url, headers: { Authorization: bearer } } } });
    case 'codex': return target.stdio
      ? `[mcp_servers.switchboard]\ncommand = "switchboard"\nargs = ${JSON.stringify(args)}\nenv = { SWITCHBOARD_URL = ${JSON.stringify(target.origin)}, SWITCHBOARD_API_KEY = ${JSON.stringify(key)} }`
      : `[mcp_servers.switchboard]\nurl = ${JSON.stringify(url)}\nbearer_token_env_var = "SWITCHBOARD_API_KEY"\n\n# and in the shell:\n# export SWITCHBOARD_API_KEY=${key}`;
    case 'opencode': return json({ mcp: { switchboard: target.stdio ? { type: 'local', command: ['switchboard', ...args], environment: env } : { type: 'remote', url, headers: { Authorization: bearer } } } });
    case 'python': return `import asyncio\nfrom mcp import ClientSession\nfrom mcp.client.streamable_http import streamablehttp_client\n\nasync def main():\n    headers = {"Authorization": ${JSON.stringify(bearer)}}\n    async with streamablehttp_client(${JSON.stringify(url)}, headers=headers) as (read, write, _):\n        async with ClientSession(read, write) as session:\n            await session.initialize()\n            for tool in (await session.list_tools()).tools:\n                print(tool.name, tool.description)\n\nasyncio.run(main())`;
    case 'typescript': return `import { Client } from "@modelcontextprotocol/sdk/client/index.js";\nimport { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";\n\nconst client = new Client({ name: "my-agent", version: "1.0.0" });\nawait client.connect(new StreamableHTTPClientTransport(new URL(${JSON.stringify(url)}), {\n  requestInit: { headers: { Authorization: ${JSON.stringify(bearer)} } },\n}));\nconsole.log(await client.listTools());`;
    default: return `curl ${shell(url)} \\\n  -H "Authorization: ${bearer}" \\\n  -H 'Content-Type: application/json' \\\n  -H 'Accept: application/json, text/event-stream' \\\n  -d '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'`;
  }
}
