// Prometheus' text format (0.0.4), and what can be read from two readings of it.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

const number = (text) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text));

// All samples of a reading: name -> [{labels, value}].
export function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split('\n')) {
    const match = line.startsWith('#') ? null : SAMPLE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? '').matchAll(LABEL)) labels[name] = value;
    if (!metrics.has(match[1])) metrics.set(match[1], []);
    metrics.get(match[1]).push({ labels, value: number(match[3]) });
  }
  return metrics;
}

// The sum of a metric over its labels, or null where it is not exported.
export function total(metrics, name, labels = {}) {
  const wanted = Object.entries(labels);
  const samples = (metrics.get(name) ?? []).filter((s) => wanted.every(([key, value]) => s.labels[key] === value));
  return samples.length === 0 ? null : samples.reduce((sum, { value }) => sum + value, 0);
}

// A histogram as [{le, count}], each count that of its own bucket, ascending. Empty where it is not exported.
export function histogram(metrics, name) {
  const cumulative = new Map();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    const le = number(labels.le);
    cumulative.set(le, (cumulative.get(le) ?? 0) + value);
  }
  const bounds = [...cumulative.keys()].sort((a, b) => a - b);
  return bounds.map((le, i) => ({ le, count: cumulative.get(le) - (i > 0 ? cumulative.get(bounds[i - 1]) : 0) }));
}

// What came into a histogram between two readings of it. A server that has restarted counts from nothing.
export function histogramSince(before, after) {
  const counts = after.map(({ le, count }, i) => ({ le, count: count - (before[i]?.count ?? 0) }));
  return counts.some(({ count }) => count < 0) ? after : counts;
}

// The value that a fraction of a histogram's entries do not exceed, interpolated within its bucket; null if it is empty.
export function quantile(buckets, fraction) {
  const all = buckets.reduce((sum, { count }) => sum + count, 0);
  if (all === 0) return null;
  let below = 0;
  let low = 0;
  for (const { le, count } of buckets) {
    if (count > 0 && below + count >= fraction * all) {
      return le === Infinity ? low : low + ((le - low) * (fraction * all - below)) / count;
    }
    below += count;
    low = le;
  }
  return low;
}
