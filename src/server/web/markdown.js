// The part of Markdown that models write, as DOM nodes: headings, paragraphs, lists, quotes, tables, rules, fenced code,
// emphasis, inline code and links. Text only ever becomes text nodes; what is not recognised stays as it is written.
import { copyFrom, element } from './dom.js';

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
const TABLE_LINE = /^\s*\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*$/;

// Splits text into blocks, each a list of lines with the kind of its first line.
function blocksOf(text) {
  const blocks = [];
  const lines = text.split('\n');
  let i = 0;
  const takeWhile = (kind, accept) => {
    const taken = [lines[i++]];
    while (i < lines.length && accept(lines[i])) taken.push(lines[i++]);
    blocks.push({ kind, lines: taken });
  };
  const startsOther = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || RULE.test(line);
  while (i < lines.length) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    if (line.trim() === '') {
      i++;
    } else if (fence) {
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      const taken = [];
      for (i++; i < lines.length && !close.test(lines[i]); i++) taken.push(lines[i]);
      i++;
      blocks.push({ kind: 'code', language: fence[2], lines: taken });
    } else if (HEADING.test(line)) {
      blocks.push({ kind: 'heading', lines: [lines[i++]] });
    } else if (RULE.test(line)) {
      blocks.push({ kind: 'rule', lines: [lines[i++]] });
    } else if (QUOTE.test(line)) {
      takeWhile('quote', (next) => QUOTE.test(next));
    } else if (ITEM.test(line)) {
      takeWhile('list', (next) => ITEM.test(next) || /^\s+\S/.test(next));
    } else if (line.includes('|') && TABLE_LINE.test(lines[i + 1] ?? '')) {
      takeWhile('table', (next) => next.includes('|'));
    } else {
      takeWhile('text', (next) => next.trim() !== '' && !startsOther(next) && !ITEM.test(next));
    }
  }
  return blocks;
}

const INLINE = [
  { pattern: /^(`+)(?!`)(.+?)(?<!`)\1(?!`)/s, make: (m) => element('code', {}, m[2].replace(/^ (.*) $/s, '$1')) },
  { pattern: /^\*\*(?=\S)(.+?\S|\S)\*\*/s, make: (m) => element('strong', {}, ...inline(m[1])) },
  { pattern: /^__(?=\S)(.+?\S|\S)__(?!\w)/s, word: true, make: (m) => element('strong', {}, ...inline(m[1])) },
  { pattern: /^~~(?=\S)(.+?)~~/s, make: (m) => element('s', {}, ...inline(m[1])) },
  { pattern: /^\*(?=[^\s*])(.*?[^\s*])\*(?!\*)/s, make: (m) => element('em', {}, ...inline(m[1])) },
  { pattern: /^_(?=[^\s_])(.*?[^\s_])_(?!\w)/s, word: true, make: (m) => element('em', {}, ...inline(m[1])) },
  { pattern: /^\[([^\]\n]+)\]\((https?:\/\/[^\s()<>"]+)\)/, make: (m) => link(m[2], ...inline(m[1])) },
  { pattern: /^https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?]/, word: true, make: (m) => link(m[0], m[0]) },
];

// Only http and https get here; a click leaves the page without telling where from.
const link = (href, ...children) =>
  element('a', { href, target: '_blank', rel: 'noopener noreferrer' }, ...children);

// Text nodes and elements of one run of text.
function inline(text) {
  const nodes = [];
  let plain = '';
  let i = 0;
  while (i < text.length) {
    let found = null;
    if ('`*_~[h'.includes(text[i])) {
      const rest = text.slice(i, i + 4096);  // a bound on the work of one character
      const insideWord = i > 0 && /\w/.test(text[i - 1]);
      for (const rule of INLINE) {
        const match = rule.word && insideWord ? null : rule.pattern.exec(rest);
        if (match) {
          found = { length: match[0].length, node: rule.make(match) };
          break;
        }
      }
    }
    if (found) {
      if (plain) nodes.push(plain);
      plain = '';
      nodes.push(found.node);
      i += found.length;
    } else if (text[i] === '\\' && '\\`*_~[]#|'.includes(text[i + 1] ?? ' ')) {
      plain += text[i + 1];
      i += 2;
    } else {
      plain += text[i++];
    }
  }
  if (plain) nodes.push(plain);
  return nodes;
}

function codeBlock({ language, lines }) {
  const text = lines.join('\n');
  const copy = element('button', { type: 'button', class: 'quiet small', onclick: () => copyFrom(copy, text) }, 'Copy');
  return element(
    'figure',
    { class: 'code' },
    element('figcaption', {}, element('span', {}, language || 'text'), copy),
    element('pre', { tabindex: '0' }, element('code', {}, text)),
  );
}

// Nested lists by indentation: an item owns the deeper lines that follow it.
function listBlock(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && (match[1].length <= indent + 1 || items.length === 0)) {
      items.push({ text: [line.slice(match[0].length)], inner: [] });
    } else if (match || FENCE.test(line) || items.at(-1).inner.length > 0) {
      items.at(-1).inner.push(line);
    } else {
      items.at(-1).text.push(line.trim());
    }
  }
  const list = element(ordered ? 'ol' : 'ul', ordered ? { start: Number.parseInt(first[2], 10) } : {});
  for (const { text, inner } of items) {
    const item = element('li', {}, ...inline(text.join('\n')));
    if (inner.length > 0) item.append(...renderMarkdown(inner.map((l) => l.slice(indent + 2)).join('\n'), depth + 1));
    list.append(item);
  }
  return list;
}

function tableBlock(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
  const row = (kind, line) => element('tr', {}, ...cells(line).map((cell) => element(kind, {}, ...inline(cell))));
  return element(
    'div',
    { class: 'table', tabindex: '0' },
    element(
      'table',
      {},
      element('thead', {}, row('th', lines[0])),
      element('tbody', {}, ...lines.slice(2).map((line) => row('td', line))),
    ),
  );
}

const MAKERS = {
  code: codeBlock,
  rule: () => element('hr'),
  heading: ({ lines }) => {
    const [, marks, title] = HEADING.exec(lines[0]);
    return element(`h${Math.min(6, marks.length + 2)}`, {}, ...inline(title));  // below the page's own headings
  },
  quote: ({ lines }, depth) =>
    element('blockquote', {}, ...renderMarkdown(lines.map((line) => line.replace(QUOTE, '')).join('\n'), depth + 1)),
  list: ({ lines }, depth) => listBlock(lines, depth),
  table: ({ lines }) => tableBlock(lines),
  text: ({ lines }) => element('p', {}, ...inline(lines.join('\n'))),
};

const keyOf = (block) => JSON.stringify(block);
// What is nested deeper is shown as it is written.
const MOST_NESTED = 16;
const makeBlock = (block, depth) => (depth < MOST_NESTED ? MAKERS[block.kind] : MAKERS.text)(block, depth);

// The nodes of a text. `depth`: of the quotes and lists around it.
export const renderMarkdown = (text, depth = 0) => blocksOf(text).map((block) => makeBlock(block, depth));

// Shows a text that grows. Blocks that did not change keep their nodes, so selections in them last and a long answer
// costs what its last block costs.
export class MarkdownView {
  constructor(container) {
    this.container = container;
    this.keys = [];
  }

  show(text) {
    const blocks = blocksOf(text);
    const keys = blocks.map(keyOf);
    let same = 0;
    while (same < keys.length && same < this.keys.length && keys[same] === this.keys[same]) same++;
    while (this.container.childNodes.length > same) this.container.lastChild.remove();
    this.container.append(...blocks.slice(same).map((block) => makeBlock(block, 0)));
    this.keys = keys;
  }
}
