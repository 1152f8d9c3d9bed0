/** How a receiver verifies the signature of a webhook (Standard Webhooks). */

export const VERIFY = [
  {
    name: 'Python',
    text: `# pip install standardwebhooks
from standardwebhooks import Webhook

def receive(headers, body: bytes):
    # Raises an error if the signature or the time does not fit.
    event = Webhook("whsec_…").verify(body, headers)
    # The same webhook-id may arrive again: handle each once.
    print(headers["webhook-id"], event["type"], event["data"])`,
  },
  {
    name: 'TypeScript',
    text: `// npm install standardwebhooks
import { Webhook } from "standardwebhooks";

export function receive(headers: Record<string, string>, body: string) {
  // Throws if the signature or the time does not fit.
  const event = new Webhook("whsec_…").verify(body, headers) as { type: string; data: unknown };
  // The same webhook-id may arrive again: handle each once.
  console.log(headers["webhook-id"], event.type, event.data);
}`,
  },
  {
    name: 'Node.js',
    text: `import { createHmac, timingSafeEqual } from "node:crypto";

const key = Buffer.from("whsec_…".slice("whsec_".length), "base64");

export function verify(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": given } = headers;
  if (Math.abs(Date.now() / 1000 - Number(time)) > 300) return false;
  const wanted = createHmac("sha256", key).update(\`\${id}.\${time}.\${body}\`).digest();
  // After a rotation there are two signatures.
  return given.split(" ").some((each) => {
    const [version, text] = each.split(",");
    const bytes = Buffer.from(text ?? "", "base64");
    return version === "v1" && bytes.length === wanted.length && timingSafeEqual(bytes, wanted);
  });
}`,
  },
  {
    name: 'openssl',
    text: `# SECRET is whsec_…; the others are headers of the request, and body.json is its body.
KEY=$(printf %s "\${SECRET#whsec_}" | base64 -d | xxd -p -c 256)
printf '%s.%s.' "$WEBHOOK_ID" "$WEBHOOK_TIMESTAMP" | cat - body.json \\
  | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$KEY" -binary | base64
# The result is what follows "v1," in webhook-signature.`,
  },
];
