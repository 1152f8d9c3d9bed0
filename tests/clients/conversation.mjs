// What the TypeScript clients have in common: commands from stdin, one JSON line for each finding.
// Commands: {"do":"list"}, {"do":"call","name":…,"arguments":…}, {"do":"cancel"} for the call that runs, {"do":"watch"}.
// Never: a judgement; what is seen is printed, and the test judges.
import { createInterface } from "node:readline";

export function found(what, details = {}) {
  process.stdout.write(`${JSON.stringify({ found: what, ...details })}\n`);
}

export const credential = { Authorization: `Bearer ${process.env.SWITCHBOARD_API_KEY}` };

/** A `fetch` that tells when the stream of notifications is open. */
export function watchedFetch() {
  let open;
  const stream = new Promise((resolve) => (open = resolve));
  const watched = async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method === "GET" && response.status === 200) open();
    return response;
  };
  return { fetch: watched, stream };
}

/** Does what stdin says until it ends. A call runs beside the commands that follow it. */
export async function converse(actions) {
  let running;
  const call = async ({ name, arguments: given }) => {
    const { signal } = (running = new AbortController());
    try {
      found("result", { result: await actions.call(name, given, signal) });
    } catch (error) {
      if (signal.aborted) found("cancelled");
      else found("error", { code: error.code, message: error.message });
    }
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.do === "list") found("tools", { tools: (await actions.list()).tools });
    else if (command.do === "call") call(command);
    else if (command.do === "cancel") running.abort("no more");
    else if (command.do === "watch") found("watching", { honoured: await actions.watch() });
    else throw new Error(`no command: ${command.do}`);
  }
  await actions.close();
}
