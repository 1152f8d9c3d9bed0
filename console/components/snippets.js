/** The same call from a shell, Python, TypeScript, and an MCP client. */

/** A word for a POSIX shell. @param {string} text */
export const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** JSON as a Python expression. @param {unknown} value @param {number} [depth] @returns {string} */
export function python(value, depth = 0) {
  const pad = '    '.repeat(depth + 1);
  const end = '    '.repeat(depth);
  if (value === null || value === undefined) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return value.length === 0 ? '[]' : `[\n${value.map((each) => `${pad}${python(each, depth + 1)},\n`).join('')}${end}]`;
  if (typeof value === 'object') {
    const entries = Object.entries(value);
    return entries.length === 0 ? '{}' : `{\n${entries.map(([name, each]) => `${pad}${JSON.stringify(name)}: ${python(each, depth + 1)},\n`).join('')}${end}}`;
  }
  return JSON.stringify(value);
}

/**
 * @param {{origin: string, device: string, body: Record<string, unknown>}} call
 * @returns {{name: string, text: string}[]}
 */
export function callSnippets({ origin, device, body }) {
  const address = `${origin}/v1/devices/${encodeURIComponent(device)}/calls`;
  const json = JSON.stringify(body);
  const params = body.params ?? {};
  return [
    { name: 'curl', text: `curl ${shell(address)} \\\n  -H "Authorization: Bearer $SWITCHBOARD_API_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(json)}` },
    { name: 'CLI', text: `switchboard call ${shell(device)} ${shell(String(body.service))} ${shell(JSON.stringify(params))}` },
    { name: 'Python', text: `import json, os, urllib.request\n\nrequest = urllib.request.Request(\n    ${JSON.stringify(address)},\n    data=json.dumps(${python(body, 1)}).encode(),\n    headers={\n        "Authorization": "Bearer " + os.environ["SWITCHBOARD_API_KEY"],\n        "Content-Type": "application/json",\n    },\n)\nprint(json.load(urllib.request.urlopen(request)))` },
    { name: 'TypeScript', text: `const response = await fetch(${JSON.stringify(address)}, {\n  method: "POST",\n  headers: {\n    Authorization: \`Bearer \${process.env.SWITCHBOARD_API_KEY}\`,\n    "Content-Type": "application/json",\n  },\n  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll('\n', '\n  ')}),\n});\nconsole.log(await response.json());` },
    { name: 'MCP', text: JSON.stringify({ mcpServers: { [device]: { type: 'http', url: `${origin}/mcp/devices/${encodeURIComponent(device)}`, headers: { Authorization: 'Bearer ${SWITCHBOARD_API_KEY}' } } } }, null, 2) },
  ];
}
