// The server's API as seen from the page: requests with the key, errors in words, server-sent events.
import { byId } from './dom.js';

const KEY = 'folio.api-key';

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The key lives as long as the tab.
const storedKey = () => sessionStorage.getItem(KEY) ?? '';

let asking = null;  // the promise of the open dialog: several requests may fail at once

// Asks for the API key. Resolves to false if the dialog was dismissed.
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = byId('key-dialog');
    const input = byId('key-input');
    byId('key-refused').hidden = storedKey() === '';
    input.value = '';
    dialog.returnValue = '';
    dialog.addEventListener(
      'close',
      () => {
        asking = null;
        const given = dialog.returnValue === 'ok' && input.value.trim() !== '';
        if (given) sessionStorage.setItem(KEY, input.value.trim());
        resolve(given);
      },
      { once: true },
    );
    byId('key-cancel').onclick = () => dialog.close();
    dialog.showModal();
  });
  return asking;
}

// What an error reply says, in either API's shape.
async function errorOf(response) {
  const text = await response.text();
  let message = text.trim();
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.message ?? (typeof body.error === 'string' ? body.error : message);
  } catch {
    // Not JSON: the text as it is.
  }
  return new ApiError(response.status, message || `${response.status} ${response.statusText}`);
}

// fetch() with the key. Paths are relative to the page, so that a proxy may put it under a prefix. Throws ApiError for
// every status but 2xx; on 401 it asks for a key, if it may, and tries again until the dialog is dismissed.
export async function request(path, { body, signal, ask = true } = {}) {
  for (;;) {
    const headers = {};
    if (storedKey()) headers.Authorization = `Bearer ${storedKey()}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await fetch(path, {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: 'no-store',
    });
    if (response.ok) return response;
    if (response.status !== 401 || !ask || !(await askForKey())) throw await errorOf(response);
  }
}

// Yields the data of each server-sent event in a response's body. Lines may end in \n or \r\n and may be cut anywhere;
// comments and other fields are skipped.
export async function* serverSentEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
        if (line.startsWith('data:')) {
          data.push(line.slice(line[5] === ' ' ? 6 : 5));
        } else if (line === '' && data.length > 0) {
          yield data.join('\n');
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Yields the chunks of a streamed chat completion. Throws ApiError for an error inside the stream, or when it ends
// without [DONE].
export async function* chatChunks(body, signal) {
  const response = await request('v1/chat/completions', { body, signal });
  for await (const data of serverSentEvents(response)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code ?? 500, chunk.error.message);
    yield chunk;
  }
  throw new ApiError(0, 'The connection closed before the answer was complete.');
}
