// The engine view: reads the server's metrics once a second and draws what became of them.
import { request } from './api.js';
import { Bars, PoolMap, Tile, TimeChart } from './charts.js';
import { byId } from './dom.js';
import { histogram, histogramSince, parseMetrics, quantile, total } from './prometheus.js';

const VISIBLE_MS = 1000;
const HIDDEN_MS = 5000;  // while another view is shown: enough to have a past when this one is opened
const LONGEST_SECONDS = 1800;
const SPARK_SECONDS = 120;

// Counters of which the view shows the rate: key -> metric.
const RATES = {
  generated: 'vllm:generation_tokens_total',
  prompted: 'vllm:prompt_tokens_total',
  queried: 'vllm:prefix_cache_queries_total',
  hit: 'vllm:prefix_cache_hits_total',
  steps: 'folio:steps_total',
  hostSeconds: 'folio:step_host_seconds_total',
  modelSeconds: 'folio:step_model_seconds_total',
  accepted: 'vllm:spec_decode_num_accepted_tokens_total',
  drafts: 'vllm:spec_decode_num_drafts_total',
  drafted: 'vllm:spec_decode_num_draft_tokens_total',
  draftSeconds: 'folio:draft_seconds_total',
};
const GAUGES = {
  running: 'vllm:num_requests_running',
  waiting: 'vllm:num_requests_waiting',
  pagesUsed: 'folio:pages_used',
  pagesCached: 'folio:pages_cached',
  pagesTotal: 'folio:pages_total',
  statesUsed: 'folio:state_slots_used',
  statesTotal: 'folio:state_slots_total',
};
const HISTOGRAMS = {
  first: 'vllm:time_to_first_token_seconds',
  between: 'vllm:inter_token_latency_seconds',
};

const whole = (v) => Math.round(v).toLocaleString('en-US');
const short = (v) => (v >= 9950 ? `${+(v / 1000).toFixed(v >= 99500 ? 0 : 1)}k` : v >= 100 ? whole(v) : String(+v.toFixed(1)));
const perSecond = (v) => `${short(v)}/s`;
const percent = (v) => `${+(100 * v).toFixed(v < 0.1 ? 1 : 0)}%`;
const time = (s) => (s >= 1 ? `${+s.toFixed(2)} s` : s >= 0.001 ? `${+(1000 * s).toPrecision(3)} ms` : `${+(1e6 * s).toPrecision(2)} µs`);

let samples = [];  // one a reading, oldest first
let span = 300;
let visible = false;
let paused = false;
let timer = 0;

// --- Reading -------------------------------------------------------------------------------------------------------

// One reading as a sample: gauges, raw counters, and the rates since the sample before (null at a restart or a gap).
function takeSample(metrics, before) {
  const sample = { time: performance.now() / 1000, counters: {}, histograms: {} };
  for (const [key, name] of Object.entries(GAUGES)) sample[key] = total(metrics, name);
  for (const [key, name] of Object.entries(HISTOGRAMS)) sample.histograms[key] = histogram(metrics, name);
  const passed = before ? sample.time - before.time : Infinity;
  for (const [key, name] of Object.entries(RATES)) {
    sample.counters[key] = total(metrics, name);
    const grown = before ? sample.counters[key] - before.counters[key] : -1;
    sample[key] = sample.counters[key] === null || grown < 0 || passed > 30 ? null : grown / passed;
  }
  sample.hitShare = sample.queried > 0 ? sample.hit / sample.queried : null;
  const busy = sample.steps > 0;
  sample.stepHost = busy ? sample.hostSeconds / sample.steps : null;
  sample.stepModel = busy ? sample.modelSeconds / sample.steps : null;
  sample.stepDraft = busy && sample.draftSeconds !== null ? sample.draftSeconds / sample.steps : null;
  sample.acceptance = sample.drafts > 0 ? sample.accepted / sample.drafts : null;
  sample.verified = sample.drafts > 0 ? sample.drafted / sample.drafts : null;
  sample.perForward = sample.acceptance === null ? null : 1 + sample.acceptance;
  return sample;
}

// "Up 2 h 5 min · 1,204 requests finished · pages of 128 tokens", from /debug/cache_stats; "" where the key is missing.
async function summary() {
  try {
    const stats = await (await request('debug/cache_stats', { ask: false })).json();
    const minutes = Math.floor(stats.uptime_seconds / 60);
    const parts = [
      minutes < 1 ? `Up ${Math.floor(stats.uptime_seconds)} s` : minutes < 60 ? `Up ${minutes} min` : `Up ${Math.floor(minutes / 60)} h ${minutes % 60} min`,
      `${whole(stats.requests.finished)} requests finished`,
      `pages of ${stats.pages.tokens_per_page} tokens`,
    ];
    if (stats.requests.preempted > 0) parts.push(`${whole(stats.requests.preempted)} preempted`);
    if (stats.prefix_cache.replay_rows > 0) parts.push(`${whole(stats.prefix_cache.replay_rows)} rows replayed`);
    return parts.join(' · ');
  } catch {
    return '';
  }
}

async function read() {
  try {
    const metrics = parseMetrics(await (await request('metrics', { ask: false })).text());
    const sample = takeSample(metrics, samples.at(-1));
    samples = samples.filter((old) => old.time > sample.time - LONGEST_SECONDS);
    samples.push(sample);
    if (visible) byId('engine-note').textContent = await summary();
  } catch (error) {
    byId('engine-note').textContent = `No metrics: ${error.message}`;
  }
  if (visible) draw();
}

async function loop() {
  clearTimeout(timer);
  if (!paused && !document.hidden) await read();
  clearTimeout(timer);  // of a loop that began meanwhile
  timer = setTimeout(loop, visible ? VISIBLE_MS : HIDDEN_MS);
}

// --- Drawing -------------------------------------------------------------------------------------------------------

const tiles = {
  rate: new Tile({ title: 'Generation', colour: 'series-1' }),
  requests: new Tile({ title: 'Requests', colour: 'series-2' }),
  pages: new Tile({ title: 'Pages', colour: 'series-3' }),
  hits: new Tile({ title: 'Prefix hits', colour: 'series-4' }),
};

const charts = {
  tokens: new TimeChart({
    title: 'Tokens', format: perSecond, least: 10,
    series: [
      { key: 'generated', name: 'generated', colour: 'series-1', fill: true },
      { key: 'prompted', name: 'prompt', colour: 'series-2' },
    ],
  }),
  requests: new TimeChart({
    title: 'Requests', format: whole, least: 4, stacked: true,
    series: [
      { key: 'running', name: 'running', colour: 'series-2', fill: true },
      { key: 'waiting', name: 'waiting', colour: 'series-5', fill: true },
    ],
  }),
  steps: new TimeChart({
    title: 'Step time', format: time, least: 0.0005, stacked: true,
    series: [
      { key: 'stepModel', name: 'model', colour: 'series-3', fill: true },
      { key: 'stepDraft', name: 'draft head', colour: 'series-1', fill: true },
      { key: 'stepHost', name: 'host', colour: 'series-5', fill: true },
    ],
  }),
  prefix: new TimeChart({
    title: 'Prefix cache', format: perSecond, least: 10,
    series: [
      { key: 'hit', name: 'tokens hit', colour: 'series-4', fill: true },
      { key: 'queried', name: 'tokens asked for', colour: 'series-2' },
    ],
  }),
  speculation: new TimeChart({
    title: 'Speculation', format: (v) => v.toFixed(2), least: 1,
    series: [
      { key: 'perForward', name: 'tokens per verification', colour: 'series-1', fill: true },
      { key: 'verified', name: 'drafts verified', colour: 'series-2' },
    ],
  }),
};

const maps = {
  pages: new PoolMap({
    title: 'Pages', unit: 'pages',
    kinds: [
      { name: 'in use', colour: 'series-3' },
      { name: 'kept for prefixes', colour: 'series-3-pale' },
      { name: 'free', colour: 'cell' },
    ],
  }),
  states: new PoolMap({
    title: 'States', unit: 'slots',
    kinds: [
      { name: 'in use', colour: 'series-2' },
      { name: 'free', colour: 'cell' },
    ],
  }),
};

const bars = {
  first: new Bars({ title: 'Time to first token', colour: 'series-1', format: time }),
  between: new Bars({ title: 'Time between tokens', colour: 'series-2', format: time }),
};

const since = (seconds) => samples.filter((sample) => sample.time >= samples.at(-1).time - seconds);
const recent = (key) => since(SPARK_SECONDS).map((sample) => sample[key]);
const orDash = (value, format) => (value === null || value === undefined ? '–' : format(value));

function drawTiles(now) {
  const { pagesUsed, pagesTotal } = now;
  tiles.rate.update({
    number: orDash(now.generated, short), unit: 'tok/s',
    note: `${orDash(now.counters.generated, whole)} since the start`, values: recent('generated'),
  });
  tiles.requests.update({
    number: orDash(now.running, whole), unit: 'running', note: `${orDash(now.waiting, whole)} waiting`,
    values: recent('running'),
  });
  tiles.pages.update({
    number: pagesTotal ? percent(pagesUsed / pagesTotal) : '–', unit: 'in use',
    note: pagesTotal ? `${whole(pagesUsed)} of ${whole(pagesTotal)}` : '', values: recent('pagesUsed'), top: pagesTotal,
  });
  const first = since(span)[0];
  const asked = now.counters.queried - first.counters.queried;
  const found = now.counters.hit - first.counters.hit;
  tiles.hits.update({
    number: asked > 0 ? percent(found / asked) : '–', unit: asked > 0 ? 'of prompt tokens' : '',
    note: `${orDash(now.counters.hit, whole)} tokens since the start`, values: recent('hitShare'), top: 1,
  });
}

function drawBars(key) {
  const all = histogramSince(since(span)[0].histograms[key], samples.at(-1).histograms[key]);
  const used = all.flatMap(({ count }, i) => (count > 0 ? [i] : []));
  const shown = used.length > 0 ? all.slice(Math.max(0, used[0] - 1), used.at(-1) + 2) : [];
  bars[key].update(
    shown.map(({ le, count }) => ({ label: le === Infinity ? 'more' : time(le), value: count })),
    [['half', 0.5], ['90 in 100', 0.9], ['99 in 100', 0.99]].map(([name, q]) => [name, orDash(quantile(all, q), time)]),
  );
}

function draw() {
  const now = samples.at(-1);
  if (!now) return;
  drawTiles(now);
  for (const chart of Object.values(charts)) chart.update(samples, span);
  charts.speculation.node.hidden = !(now.counters.drafts > 0);
  maps.pages.node.hidden = now.pagesTotal === null;
  maps.states.node.hidden = now.statesTotal === null;
  maps.pages.update([now.pagesUsed, now.pagesCached, Math.max(0, now.pagesTotal - now.pagesUsed - now.pagesCached)]);
  maps.states.update([now.statesUsed, now.statesTotal - now.statesUsed]);
  drawBars('first');
  drawBars('between');
}

// Draws again what is there: after a change of colours.
export function redrawEngine() {
  for (const part of [tiles, charts, maps, bars].flatMap(Object.values)) part.redraw();
}

export function showEngine(shown) {
  visible = shown;
  loop();
}

export function startEngine() {
  byId('tiles').append(...Object.values(tiles).map(({ node }) => node));
  byId('charts').append(
    ...[charts.tokens, charts.requests, maps.pages, maps.states, charts.steps, charts.prefix, charts.speculation,
      bars.first, bars.between].map(({ node }) => node));
  for (const button of document.querySelectorAll('[data-span]')) {
    button.addEventListener('click', () => {
      span = Number(button.dataset.span);
      for (const other of document.querySelectorAll('[data-span]')) {
        other.setAttribute('aria-pressed', String(other === button));
      }
      draw();
    });
  }
  byId('pause').addEventListener('click', () => {
    paused = !paused;
    byId('pause').setAttribute('aria-pressed', String(paused));
    byId('pause').textContent = paused ? 'Go on' : 'Pause';
  });
}
