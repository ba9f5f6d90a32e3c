// Charts on canvas. Each is redrawn when there is something new to show, and never in between: the machine has better
// things to do.
import { element } from './dom.js';

// A colour of the style sheet, as a canvas takes it.
const probe = element('span', { hidden: true });
document.body.append(probe);
function css(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
const font = () => `11px ${getComputedStyle(document.body).fontFamily}`;

// A round number that is at least `value`, and not much more.
function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.999);
}

// A canvas that fills its box at the screen's resolution. `draw` gets a context in CSS pixels, and the size.
function makeCanvas(properties, draw) {
  const canvas = element('canvas', properties);
  let size = { width: 0, height: 0 };
  const redraw = () => {
    const { width, height } = size;
    if (width === 0 || height === 0) return;
    const context = canvas.getContext('2d');
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  new ResizeObserver(([entry]) => {
    size = { width: entry.contentRect.width, height: entry.contentRect.height };
    redraw();
  }).observe(canvas);
  return { canvas, redraw };
}

export function card(title, ...children) {
  return element('section', { class: 'card', 'aria-label': title }, element('h2', {}, title), ...children);
}

// Values over time. `series`: [{key, name, colour (a CSS variable), fill}]; `format` writes a value with its unit.
// `least`: the lowest top of the scale.
export class TimeChart {
  constructor({ title, series, format, least = 1, stacked = false }) {
    Object.assign(this, { title, series, format, least, stacked });
    this.samples = [];
    this.span = 300;
    this.at = null;  // index of the sample under the pointer
    this.values = series.map(() => element('span', { class: 'value' }));
    const legend = series.map(({ name, colour }, i) =>
      element('li', {}, element('i', { class: `swatch ${colour}`, 'aria-hidden': 'true' }), name, this.values[i]));
    this.when = element('span', { class: 'when' });
    const made = makeCanvas({ class: 'plot', role: 'img', tabindex: '0' }, (...args) => this.draw(...args));
    this.canvas = made.canvas;
    this.redraw = made.redraw;
    this.node = card(title, element('ul', { class: 'legend' }, ...legend), made.canvas, this.when);
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX / this.canvas.clientWidth));
    this.canvas.addEventListener('pointerleave', () => this.pointAt(null));
    this.canvas.addEventListener('blur', () => this.pointAt(null));
    this.canvas.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || this.samples.length === 0) return;
      this.pointAt(Math.max(0, Math.min(this.samples.length - 1, (this.at ?? this.samples.length) + step)));
      event.preventDefault();
    });
  }

  // `samples`: [{time (seconds), KEY: value or null}], oldest first; the last `span` seconds are shown, fewer (but a
  // minute) where there are not so many yet.
  update(samples, span) {
    const end = samples.at(-1)?.time ?? 0;
    const age = end - (samples[0]?.time ?? 0);
    this.span = Math.min(span, Math.max(60, 30 * Math.ceil(age / 30)));
    this.samples = samples.filter(({ time }) => time >= end - this.span);
    if (this.at !== null) this.at = Math.min(this.at, this.samples.length - 1);
    this.showValues();
    this.redraw();
  }

  point(fraction) {
    if (this.samples.length === 0) return;
    const end = this.samples.at(-1).time;
    const time = end - this.span * (1 - fraction);
    let best = 0;
    this.samples.forEach((sample, i) => {
      if (Math.abs(sample.time - time) < Math.abs(this.samples[best].time - time)) best = i;
    });
    this.pointAt(best);
  }

  pointAt(index) {
    this.at = index;
    this.showValues();
    this.redraw();
  }

  showValues() {
    const sample = this.samples[this.at ?? this.samples.length - 1];
    const shown = this.series.map(({ key }) => (sample?.[key] == null ? '–' : this.format(sample[key])));
    shown.forEach((text, i) => (this.values[i].textContent = text));
    this.when.textContent = this.at === null || !sample ? '' : `${Math.round(this.samples.at(-1).time - sample.time)} s ago`;
    this.canvas.setAttribute(
      'aria-label',
      `${this.title}: ${this.series.map(({ name }, i) => `${name} ${shown[i]}`).join(', ')}`,
    );
  }

  heights(sample) {
    let sum = 0;
    return this.series.map(({ key }) => {
      if (sample[key] == null) return null;
      return this.stacked ? (sum += sample[key]) : sample[key];
    });
  }

  draw(context, width, height) {
    const bottom = height - 18;
    const top = 8;
    const lines = this.samples.map((sample) => this.heights(sample));
    const highest = niceCeiling(Math.max(this.least, ...lines.flat().filter((v) => v !== null)));
    const end = this.samples.at(-1)?.time ?? 0;
    const x = (sample) => width * (1 - (end - sample.time) / this.span);
    const y = (value) => bottom - ((bottom - top) * value) / highest;
    this.drawGrid(context, width, { bottom, top, highest });
    // The first series on top: where the others are nothing, their lines lie on its own.
    for (let s = this.series.length - 1; s >= 0; s--) {
      const { colour, fill } = this.series[s];
      const below = (i) => (this.stacked && s > 0 ? y(lines[i][s - 1] ?? 0) : bottom);
      const points = this.samples.map((sample, i) => (lines[i][s] === null ? null : [x(sample), y(lines[i][s]), below(i)]));
      drawLine(context, points, css(`--${colour}`), fill);
    }
    if (this.at !== null && this.samples[this.at]) this.drawPointer(context, { x: x(this.samples[this.at]), y, top, bottom });
  }

  drawGrid(context, width, { bottom, top, highest }) {
    context.font = font();
    context.fillStyle = css('--faint');
    context.strokeStyle = css('--line');
    context.lineWidth = 1;
    for (const part of [0, 0.5, 1]) {
      const level = Math.round(bottom - (bottom - top) * part) + 0.5;
      context.beginPath();
      context.moveTo(0, level);
      context.lineTo(width, level);
      context.stroke();
      if (part > 0) context.fillText(this.format(highest * part), 0, level + 12);
    }
    context.fillText(this.span >= 120 ? `${+(this.span / 60).toFixed(1)} min ago` : `${this.span} s ago`, 0, bottom + 14);
    context.textAlign = 'right';
    context.fillText('now', width, bottom + 14);
    context.textAlign = 'left';
  }

  drawPointer(context, { x, y, top, bottom }) {
    context.strokeStyle = css('--muted');
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, top);
    context.lineTo(Math.round(x) + 0.5, bottom);
    context.stroke();
    this.heights(this.samples[this.at]).forEach((value, i) => {
      if (value === null) return;
      context.fillStyle = css(`--${this.series[i].colour}`);
      context.beginPath();
      context.arc(x, y(value), 3.5, 0, 2 * Math.PI);
      context.fill();
    });
  }
}

// A line through points, [x, y, y of the ground below] or null for a gap; filled down to the ground if asked.
function drawLine(context, points, colour, fill) {
  let run = [];
  const finish = () => {
    if (run.length > 1) {
      context.beginPath();
      run.forEach(([x, y]) => context.lineTo(x, y));
      context.strokeStyle = colour;
      context.lineWidth = 1.75;
      context.lineJoin = 'round';
      context.stroke();
      if (fill) {
        run.toReversed().forEach(([x, , ground]) => context.lineTo(x, ground));
        context.closePath();
        context.globalAlpha = 0.14;
        context.fillStyle = colour;
        context.fill();
        context.globalAlpha = 1;
      }
    }
    run = [];
  };
  for (const point of points) {
    if (point === null) finish();
    else run.push(point);
  }
  finish();
}

// A number to look at, with the line of how it came to be.
export class Tile {
  constructor({ title, colour }) {
    this.title = title;
    this.colour = colour;
    this.number = element('span', { class: 'number' }, '–');
    this.unit = element('span', { class: 'unit' });
    this.note = element('p', { class: 'note' });
    this.values = [];
    const made = makeCanvas({ class: 'spark', 'aria-hidden': 'true' }, (...args) => this.draw(...args));
    this.redraw = made.redraw;
    this.node = element(
      'section',
      { class: 'tile', 'aria-label': title },
      element('h2', {}, title),
      element('p', { class: 'figure' }, this.number, this.unit),
      this.note,
      made.canvas,
    );
  }

  // `top`: the value at the top of the line's scale; the highest that is shown where it is not given.
  update({ number, unit = '', note = '', values, top }) {
    this.number.textContent = number;
    this.unit.textContent = unit;
    this.note.textContent = note;
    this.values = values;
    this.top = top;
    this.redraw();
  }

  draw(context, width, height) {
    const highest = this.top ?? Math.max(1e-9, ...this.values.filter((v) => v !== null));
    const step = width / Math.max(1, this.values.length - 1);
    const points = this.values.map((v, i) => (v === null ? null : [i * step, height - 2 - ((height - 6) * v) / highest, height]));
    drawLine(context, points, css(`--${this.colour}`), true);
  }
}

// A pool as a field of cells, filled from the start: one cell a unit, or a few units a cell where there are many.
// `kinds`: [{name, colour}], the last one for what is free.
export class PoolMap {
  constructor({ title, kinds, unit }) {
    Object.assign(this, { title, kinds, unit });
    this.counts = kinds.map(() => 0);
    this.values = kinds.map(() => element('span', { class: 'value' }));
    const legend = kinds.map(({ name, colour }, i) =>
      element('li', {}, element('i', { class: `swatch ${colour}`, 'aria-hidden': 'true' }), name, this.values[i]));
    const made = makeCanvas({ class: 'plot map', role: 'img' }, (...args) => this.draw(...args));
    this.canvas = made.canvas;
    this.redraw = made.redraw;
    this.scale = element('span', { class: 'when' });
    this.node = card(title, element('ul', { class: 'legend' }, ...legend), made.canvas, this.scale);
  }

  // `counts`: units of each kind.
  update(counts) {
    this.counts = counts;
    counts.forEach((n, i) => (this.values[i].textContent = n.toLocaleString('en-US')));
    this.canvas.setAttribute('aria-label', `${this.title}: ${counts.map((n, i) => `${n} ${this.kinds[i].name}`).join(', ')}`);
    this.redraw();
  }

  draw(context, width, height) {
    const all = this.counts.reduce((sum, n) => sum + n, 0);
    if (all === 0) return;
    const smallest = 7;
    const most = Math.floor(width / smallest) * Math.floor(height / smallest);
    const perCell = Math.ceil(all / most);
    const cells = Math.ceil(all / perCell);
    // The largest pitch at which they fit.
    let pitch = smallest;
    while (pitch < 26 && Math.floor(width / (pitch + 1)) * Math.floor(height / (pitch + 1)) >= cells) pitch++;
    const columns = Math.floor(width / pitch);
    const gap = pitch > 12 ? 3 : 2;
    const colours = this.kinds.map(({ colour }) => css(`--${colour}`));
    let kind = 0;
    let until = this.counts[0];
    for (let i = 0; i < cells; i++) {
      while (kind < this.counts.length - 1 && i * perCell >= until) until += this.counts[++kind];
      context.fillStyle = colours[kind];
      context.beginPath();
      context.roundRect((i % columns) * pitch, Math.floor(i / columns) * pitch, pitch - gap, pitch - gap, gap);
      context.fill();
    }
    this.scale.textContent = perCell > 1 ? `one cell: ${perCell} ${this.unit}` : `one cell: one ${this.unit.replace(/s$/, '')}`;
  }
}

// How often which value came: a histogram's buckets as bars, with the usual quantiles written beside its title.
export class Bars {
  constructor({ title, colour, format }) {
    Object.assign(this, { title, colour, format });
    this.bars = [];
    this.quantiles = element('ul', { class: 'legend' });
    const made = makeCanvas({ class: 'plot', role: 'img' }, (...args) => this.draw(...args));
    this.canvas = made.canvas;
    this.redraw = made.redraw;
    this.node = card(title, this.quantiles, made.canvas);
  }

  // `bars`: [{label, value}]; `quantiles`: [[name, text]].
  update(bars, quantiles) {
    this.bars = bars;
    this.quantiles.replaceChildren(
      ...quantiles.map(([name, text]) => element('li', {}, name, element('span', { class: 'value' }, text))));
    this.canvas.setAttribute('aria-label', `${this.title}: ${quantiles.map((pair) => pair.join(' ')).join(', ')}`);
    this.redraw();
  }

  draw(context, width, height) {
    const bottom = height - 18;
    const highest = Math.max(1e-9, ...this.bars.map(({ value }) => value));
    const step = Math.min(64, width / Math.max(1, this.bars.length));
    context.font = font();
    context.textAlign = 'center';
    context.strokeStyle = css('--line');
    context.beginPath();
    context.moveTo(0, bottom + 0.5);
    context.lineTo(width, bottom + 0.5);
    context.stroke();
    let free = 0;  // where the next label may begin
    this.bars.forEach(({ label, value }, i) => {
      const tall = value > 0 ? Math.max(2, ((bottom - 8) * value) / highest) : 0;
      context.fillStyle = css(`--${this.colour}`);
      context.beginPath();
      context.roundRect(i * step + 2, bottom - tall, Math.max(2, step - 4), tall, [3, 3, 0, 0]);
      context.fill();
      const middle = (i + 0.5) * step;
      const half = context.measureText(label).width / 2 + 4;
      if (middle - half >= free && middle + half <= width) {
        context.fillStyle = css('--faint');
        context.fillText(label, middle, bottom + 14);
        free = middle + half;
      }
    });
    if (this.bars.length === 0) {
      context.fillStyle = css('--faint');
      context.fillText('nothing in this time', width / 2, bottom / 2);
    }
  }
}
