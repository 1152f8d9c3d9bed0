/** Server-sent events over fetch: EventSource can set no header. */

/** @typedef {{type: string, data: string, id: string | undefined}} ServerEvent */

/** More than any event of the server; a longer one is an error of the stream. */
const MAX_EVENT_CHARS = 4 * 1024 * 1024;

/**
 * A parser of the text/event-stream format (HTML, section 9.2): push text as it comes.
 * @param {(event: ServerEvent) => void} emit
 * @param {(id: string) => void} [move] called with an id that no event has
 */
export function parser(emit, move) {
  let rest = '';
  let type = '';
  /** @type {string[]} */
  let data = [];
  let size = 0;
  /** @type {string | undefined} */
  let id;
  let moved = false;

  /** @param {string} line */
  function take(line) {
    if (line === '') {
      if (data.length > 0) emit({ type: type || 'message', data: data.join('\n'), id });
      else if (moved && id !== undefined) move?.(id);
      moved = false;
      type = '';
      data = [];
      size = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') type = value;
    else if (name === 'id' && !value.includes('\0')) {
      id = value;
      moved = true;
    }
    else if (name === 'data') {
      size += value.length;
      if (size > MAX_EVENT_CHARS) throw new Error('an event is too large');
      data.push(value);
    }
  }

  return {
    /** @param {string} text */
    push(text) {
      rest += text;
      for (;;) {
        const end = rest.search(/\r\n|\n|\r/);
        if (end < 0) break;
        // A \r at the end may be the first half of \r\n.
        if (rest[end] === '\r' && end === rest.length - 1) break;
        const line = rest.slice(0, end);
        rest = rest.slice(end + (rest.startsWith('\r\n', end) ? 2 : 1));
        take(line);
      }
      if (rest.length > MAX_EVENT_CHARS) throw new Error('a line is too long');
    },
  };
}

/**
 * The events of a response, until it ends.
 * @param {Response} response @param {(event: ServerEvent) => void} emit @param {{activity?: () => void, move?: (id: string) => void}} [on] called whenever data arrives, comments included; and with an id that no event has
 */
export async function read(response, emit, on = {}) {
  if (!response.body) return;
  const events = parser(emit, on.move);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    on.activity?.();
    events.push(value);
  }
}

/** Whether a response is a stream of events. @param {Response} response */
export const isStream = (response) => (response.headers.get('Content-Type') ?? '').startsWith('text/event-stream');
