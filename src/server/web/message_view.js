// One message of the conversation as DOM nodes, and the same while it grows.
import { copyFrom, element } from './dom.js';
import { MarkdownView } from './markdown.js';

// "1,234"
export const count = (n) => n.toLocaleString('en-US');
const seconds = (s) => (s < 1 ? `${Math.round(1000 * s)} ms` : `${s.toFixed(1)} s`);

// Arguments for reading: indented if they are whole JSON, as they came while they are not.
function prettyArguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function userView(message, { onEdit }) {
  return element(
    'article',
    { class: 'message user', 'aria-label': 'You' },
    element('div', { class: 'bubble' }, message.content),
    element(
      'div',
      { class: 'message-actions' },
      element('button', { type: 'button', class: 'quiet small', onclick: onEdit }, 'Edit'),
    ),
  );
}

export function toolResultView(message) {
  return element(
    'article',
    { class: 'message tool', 'aria-label': 'Tool result' },
    element('span', { class: 'tool-label' }, 'Result'),
    element('pre', { tabindex: '0' }, message.content),
  );
}

export function errorView(text, onRetry) {
  return element(
    'div',
    { class: 'failure', role: 'alert' },
    element('p', {}, text),
    onRetry && element('button', { type: 'button', class: 'quiet small', onclick: onRetry }, 'Try again'),
  );
}

// An assistant's message. update() is called as it grows, finish() once.
export class AssistantView {
  constructor({ onAgain, onToolResults }) {
    this.onToolResults = onToolResults;
    this.thoughts = element('div', { class: 'thoughts' });
    this.summary = element('summary', {}, 'Thinking');
    this.reasoning = element('details', { class: 'reasoning', hidden: true }, this.summary, this.thoughts);
    this.body = element('div', { class: 'prose' });
    this.calls = element('div', { class: 'calls' });
    this.stats = element('p', { class: 'stats' });
    this.copy = element('button', { type: 'button', class: 'quiet small' }, 'Copy');
    this.actions = element(
      'div',
      { class: 'message-actions', hidden: true },
      this.copy,
      element('button', { type: 'button', class: 'quiet small', onclick: onAgain }, 'Again'),
      this.stats,
    );
    this.node = element(
      'article',
      { class: 'message assistant', 'aria-label': 'Answer', 'aria-busy': 'true' },
      this.reasoning, this.body, this.calls, this.actions,
    );
    this.markdown = new MarkdownView(this.body);
    this.cards = [];
  }

  update(message, timing) {
    if (message.reasoning_content) {
      this.reasoning.hidden = false;
      this.thoughts.textContent = message.reasoning_content;
      const thinking = timing.running && !message.content && !message.tool_calls;
      this.reasoning.classList.toggle('live', thinking);
      this.summary.textContent = thinking ? 'Thinking' : `Thought${timing.thought ? ` for ${seconds(timing.thought)}` : ''}`;
    }
    this.markdown.show(message.content ?? '');
    (message.tool_calls ?? []).forEach((call, i) => this.showCall(call, i));
    this.node.classList.toggle('waiting', timing.running && !message.reasoning_content && !message.content && !message.tool_calls);
  }

  showCall(call, i) {
    if (!this.cards[i]) {
      const name = element('code', {});
      const text = element('pre', { tabindex: '0' });
      const card = element('section', { class: 'call' }, element('h3', {}, 'Calls ', name), text);
      this.cards[i] = { name, text, card };
      this.calls.append(card);
    }
    this.cards[i].name.textContent = call.function.name;
    this.cards[i].card.setAttribute('aria-label', `Tool call ${call.function.name}`);
    this.cards[i].text.textContent = prettyArguments(call.function.arguments);
  }

  finish(message, stats) {
    this.update(message, { running: false, thought: stats.thought });
    this.node.setAttribute('aria-busy', 'false');
    this.actions.hidden = false;
    this.copy.addEventListener('click', () => copyFrom(this.copy, message.content ?? ''));
    this.copy.hidden = !message.content;
    this.stats.textContent = describe(stats);
  }

  // Asks for the results of the message's calls, which no tool here computes.
  askForResults(message) {
    const fields = message.tool_calls.map((call) =>
      element('label', {}, `Result of ${call.function.name}`, element('textarea', { rows: 2, class: 'mono' })));
    const form = element(
      'form',
      {
        class: 'results',
        onsubmit: (event) => {
          event.preventDefault();
          form.remove();
          this.onToolResults(fields.map((field) => field.querySelector('textarea').value));
        },
      },
      ...fields,
      element('button', { type: 'submit', class: 'primary small' }, fields.length > 1 ? 'Send results' : 'Send result'),
    );
    this.calls.append(form);
  }
}

// "212 tokens · 48.1 tok/s · first after 130 ms · 1,024 of 1,100 prompt tokens cached · stopped"
function describe(stats) {
  const parts = [];
  if (stats.tokens) parts.push(`${count(stats.tokens)} tokens`);
  if (stats.rate) parts.push(`${stats.rate.toFixed(1)} tok/s`);
  if (stats.first !== null) parts.push(`first after ${seconds(stats.first)}`);
  if (stats.cached) parts.push(`${count(stats.cached)} of ${count(stats.prompt)} prompt tokens cached`);
  if (stats.finish === 'length') parts.push('cut at the token limit');
  if (stats.finish === 'abort') parts.push('stopped');
  return parts.join(' · ');
}
