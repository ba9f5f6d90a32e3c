// The conversation: its messages, one answer at a time, and the composer.
import { ApiError, chatChunks } from './api.js';
import { announce, byId } from './dom.js';
import { AssistantView, count, errorView, toolResultView, userView } from './message_view.js';
import { contextLength, requestFields, systemPrompt } from './settings.js';

const STORE = 'folio.conversation';  // of this tab: a reload keeps it, closing the tab forgets it

let messages = [];  // as the API takes them, with `stats` beside each answer
let running = null;  // the AbortController of the answer that is being written

const prompt = byId('prompt');
const scroll = byId('scroll');

// --- What is shown -------------------------------------------------------------------------------------------------

let atEnd = true;  // whether the reader is at the end, and so wants to stay there
const followEnd = () => atEnd && (scroll.scrollTop = scroll.scrollHeight);

const show = (node) => {
  byId('empty').hidden = true;
  byId('messages').append(node);
  followEnd();
};

function assistantView(index) {
  return new AssistantView({
    onAgain: () => rewind(index, () => answer()),
    onToolResults: (results) => {
      messages[index].tool_calls.forEach((call, i) =>
        messages.push({ role: 'tool', tool_call_id: call.id, content: results[i] }));
      redraw();
      answer();
    },
  });
}

function redraw() {
  byId('messages').replaceChildren();
  byId('empty').hidden = messages.length > 0;
  messages.forEach((message, index) => {
    if (message.role === 'user') {
      show(userView(message, { onEdit: () => rewind(index, () => setPrompt(message.content)) }));
    } else if (message.role === 'tool') {
      show(toolResultView(message));
    } else {
      const view = assistantView(index);
      show(view.node);
      view.finish(message, message.stats);
      if (message.tool_calls && index === messages.length - 1) view.askForResults(message);
    }
  });
  save();
}

function showMeter(stats) {
  const context = contextLength();
  const parts = [];
  if (stats?.rate) parts.push(`${stats.rate.toFixed(1)} tok/s`);
  if (stats?.tokens) parts.push(`${count(stats.tokens)} tokens`);
  if (stats?.prompt) {
    const used = stats.prompt + stats.tokens;
    parts.push(`context ${count(used)}${context ? ` of ${count(context)}` : ''}`);
  }
  byId('meter').textContent = parts.join(' · ');
}

function setRunning(controller) {
  running = controller;
  byId('stop').hidden = !controller;
  byId('send').hidden = Boolean(controller);
  document.body.classList.toggle('running', Boolean(controller));
}

// --- The conversation ----------------------------------------------------------------------------------------------

const save = () => sessionStorage.setItem(STORE, JSON.stringify(messages));

// Takes the conversation back to before a message, then goes on.
function rewind(index, next) {
  stop();
  messages = messages.slice(0, index);
  redraw();
  next();
}

// The messages as the request has them.
function requestMessages() {
  const system = systemPrompt();
  const sent = messages.map(({ stats, ...message }) => message);
  return system.trim() === '' ? sent : [{ role: 'system', content: system }, ...sent];
}

// Adds a chunk's delta to a message.
function addDelta(message, delta) {
  message.reasoning_content = (message.reasoning_content ?? '') + (delta.reasoning_content ?? '') || undefined;
  message.content = (message.content ?? '') + (delta.content ?? '') || null;
  for (const part of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    const call = (message.tool_calls[part.index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
    call.id = part.id ?? call.id;
    call.function.name += part.function?.name ?? '';
    call.function.arguments += part.function?.arguments ?? '';
  }
}

// Time and tokens of one answer, updated by each chunk.
class Progress {
  constructor() {
    this.start = performance.now();
    this.stats = { tokens: 0, prompt: 0, cached: 0, first: null, thought: null, rate: null, finish: null };
    this.chunks = 0;
  }

  add(chunk, message) {
    const { stats } = this;
    const now = (performance.now() - this.start) / 1000;
    const choice = chunk.choices[0];
    const delta = choice?.delta ?? {};
    if (delta.content || delta.reasoning_content || delta.tool_calls) {
      stats.first ??= now;
      this.chunks++;
      if (message.reasoning_content && (delta.content || delta.tool_calls)) stats.thought ??= now - stats.first;
    }
    stats.finish = choice?.finish_reason ?? stats.finish;
    if (chunk.usage) {
      stats.prompt = chunk.usage.prompt_tokens;
      stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
      stats.tokens = chunk.usage.completion_tokens ?? 0;
    } else {
      stats.tokens = Math.max(stats.tokens, this.chunks);  // until the server says how many
    }
    const writing = now - (stats.first ?? now);
    if (choice && stats.tokens > 1 && writing > 0.02) stats.rate = (stats.tokens - 1) / writing;
  }
}

// Streams the next answer to the conversation as it stands.
async function answer() {
  let fields;
  try {
    fields = requestFields();
  } catch (error) {
    show(errorView(error.message));
    return;
  }
  const index = messages.length;
  const message = { role: 'assistant', content: null };
  const view = assistantView(index);
  const progress = new Progress();
  const controller = new AbortController();
  let frame = 0;
  const draw = () => {
    frame = 0;
    view.update(message, { running: running === controller, thought: progress.stats.thought });
    showMeter(progress.stats);
    followEnd();
  };
  const body = {
    ...fields,
    messages: requestMessages(),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
  setRunning(controller);
  atEnd = true;
  show(view.node);
  draw();
  let failure = null;
  try {
    for await (const chunk of chatChunks(body, controller.signal)) {
      if (controller.signal.aborted) break;
      if (chunk.choices[0]) addDelta(message, chunk.choices[0].delta ?? {});
      progress.add(chunk, message);
      frame ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (!controller.signal.aborted) failure = error;
  }
  cancelAnimationFrame(frame);
  if (controller.signal.aborted) progress.stats.finish = 'abort';
  if (running === controller) setRunning(null);
  settle(view, index, message, progress.stats, failure);
}

// Ends an answer: keeps what there is of it, and says what went wrong.
function settle(view, index, message, stats, failure) {
  if (messages.length !== index || !view.node.isConnected) return;  // the conversation has gone on without it
  const something = message.content || message.reasoning_content || message.tool_calls;
  if (something) {
    // A call that was cut is shown, but it cannot be sent back.
    const whole = stats.finish === 'tool_calls' || stats.finish === 'stop';
    messages.push({ ...message, tool_calls: whole ? message.tool_calls : undefined, stats });
    view.finish(message, stats);
    if (whole && message.tool_calls) view.askForResults(message);
  } else if (stats.finish === 'stop' || stats.finish === 'length') {
    messages.push({ ...message, content: '', stats });
    view.finish(message, stats);
  } else {
    view.node.remove();
  }
  save();
  showMeter(stats);
  if (failure) {
    const text = failure instanceof ApiError ? failure.message : `The server cannot be reached: ${failure.message}`;
    show(errorView(text, () => rewind(index, () => answer())));
    announce(`Failed: ${text}`);
  } else {
    announce(stats.finish === 'abort' ? 'Stopped' : `Answer: ${message.content ?? 'tool calls'}`);
  }
  followEnd();
}

export function stop() {
  running?.abort();
  setRunning(null);
}

export function newConversation() {
  stop();
  messages = [];
  redraw();
  showMeter(null);
  prompt.focus();
}

// --- The composer --------------------------------------------------------------------------------------------------

function fitPrompt() {
  prompt.style.height = 'auto';
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function setPrompt(text) {
  prompt.value = text;
  fitPrompt();
  prompt.focus();
}

function send() {
  const text = prompt.value;
  if (text.trim() === '' || running) return;
  setPrompt('');
  messages.push({ role: 'user', content: text });
  redraw();
  answer();
}

export function startChat() {
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  prompt.addEventListener('input', fitPrompt);
  prompt.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  byId('stop').addEventListener('click', stop);
  byId('new-chat').addEventListener('click', newConversation);
  scroll.addEventListener('scroll', () => {
    atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;
  });
  try {
    messages = JSON.parse(sessionStorage.getItem(STORE) ?? '[]');
  } catch {
    messages = [];
  }
  redraw();
}
