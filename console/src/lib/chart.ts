// Charts of a volume's history, drawn by uPlot.

import uPlot from 'uplot';
import type { Heat, History, LimitChange } from './api';
import { MIB, clock, delay, percent, short } from './format';
import { i18n } from './i18n/index.svelte';

type Values = (number | null)[];
export type Data = [number[], ...Values[]];

const css = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns a colour token with an opacity, as canvas takes it. */
const faded = (hex: string, alpha: string): string => `${hex}${alpha}`;

/** Returns the limit at each time, in MiB/s: that of the rows, and where a volume rested and has none, by its changes. */
function limits(past: History, marks: LimitChange[], now: number): Values {
  const read = past.figures.readBytesPerSecond ?? [];
  const rows = past.figures.limitBytesPerSecond ?? [];
  const out: Values = [];
  let mark = marks.length - 1;
  let limit = now;
  for (let i = read.length - 1; i >= 0; i -= 1) {
    const at = past.startEpochSeconds + i * past.stepSeconds;
    for (; mark >= 0 && at < Date.parse(marks[mark]?.time ?? '') / 1000; mark -= 1) limit = marks[mark]?.fromBytesPerSecond ?? 0;
    out[i] = read[i] === null ? null : (rows[i] || limit) / MIB || null;
  }
  return out;
}

/** Least number of points of a chart. */
const POINTS = 120;

/** Returns data without the time before the server began to look, as far as there is enough behind it. */
function known(data: Data): Data {
  const first = data[1]?.findIndex((v) => v !== null) ?? -1;
  const from = Math.min(first < 0 ? 0 : first, Math.max(0, data[0].length - POINTS));
  return data.map((values) => values.slice(from)) as Data;
}

/** Returns times, use, limit and what waits above it, in MiB/s and MiB. `now` is the limit in force, in bytes a second. */
export function throughputData(past: History, marks: LimitChange[], now: number): Data {
  const f = past.figures;
  const read = f.readBytesPerSecond ?? [];
  const use = read.map((r, i) => (r === null ? null : (r + (f.writeBytesPerSecond?.[i] ?? 0)) / MIB));
  const limit = limits(past, marks, now);
  const waiting = use.map((u, i) => {
    const bytes = f.waitingBytes?.[i] ?? 0;
    return u === null || !bytes ? null : Math.max(u, limit[i] ?? 0) + bytes / MIB;
  });
  const base = use.map((u, i) => (waiting[i] === null || u === null ? null : Math.max(u, limit[i] ?? 0)));
  return known([times(past, read.length), use, limit, base, waiting]);
}

/** Returns times, p50 and p99 in seconds, each twice: a line has a rim of the card's colour below it. */
export function latencyData(past: History): Data {
  const some = (values: Values = []) => values.map((v) => v || null);
  const p50 = some(past.figures.p50Seconds);
  const p99 = some(past.figures.p99Seconds);
  // The same seconds as those of the throughput above it.
  const shown = known([times(past, p50.length), past.figures.readBytesPerSecond ?? []])[0].length;
  const last = (values: Values) => values.slice(-shown);
  return [times(past, p50.length).slice(-shown), last(p50), last(p99), last(p50), last(p99)];
}

/** Shares of operations from which on a cell has the next of five colours. */
export const SHARES = [0, 0.01, 0.05, 0.15, 0.3];

/** Returns the least and the greatest latency of a row of a heat map. */
function bounds(heat: Heat, row: number): [number, number] {
  const first = heat.upperSeconds[0] ?? 1e-5;
  const lower = row === 0 ? first / 2 : (heat.upperSeconds[row - 1] ?? first);
  return [lower, heat.upperSeconds[row] ?? lower * 2];
}

/** Returns the rows of a heat map that have operations: the first and the last. */
function rowsOf(heat: Heat): [number, number] | null {
  let [first, last] = [Infinity, -1];
  for (const column of heat.operations) {
    column?.forEach((n, row) => {
      if (n > 0) [first, last] = [Math.min(first, row), Math.max(last, row)];
    });
  }
  return last < 0 ? null : [first, last];
}

/** Draws a heat map behind the lines: a cell's colour is its share of the operations of its column. */
function drawHeat(u: uPlot, heat: Heat): void {
  const g = u.ctx;
  const colours = SHARES.map((_, i) => css(`--h${i + 1}`));
  const { left, top, width, height } = u.bbox;
  g.save();
  g.beginPath();
  g.rect(left, top, width, height);
  g.clip();
  const gap = devicePixelRatio;
  heat.operations.forEach((column, i) => {
    const all = column?.reduce((a, b) => a + b, 0) ?? 0;
    if (!column || !all) return;
    const from = u.valToPos(heat.startEpochSeconds + i * heat.stepSeconds, 'x', true);
    const to = u.valToPos(heat.startEpochSeconds + (i + 1) * heat.stepSeconds, 'x', true);
    column.forEach((n, row) => {
      if (!n) return;
      const [lower, upper] = bounds(heat, row);
      const [y0, y1] = [u.valToPos(upper, 'y', true), u.valToPos(lower, 'y', true)];
      const colour = SHARES.filter((share) => n / all >= share).length - 1;
      g.fillStyle = colours[Math.max(0, colour)] ?? '';
      g.fillRect(from, y0 + gap / 2, Math.max(1, to - from), y1 - y0 - gap);
    });
  });
  g.restore();
}

/** Says which latency most operations of a moment had. */
function mostAt(heat: Heat | null, second: number): string {
  const column = heat?.operations[Math.floor((second - heat.startEpochSeconds) / heat.stepSeconds)];
  const all = column?.reduce((a, b) => a + b, 0) ?? 0;
  if (!heat || !column || !all) return '';
  const row = column.indexOf(Math.max(...column));
  const [lower, upper] = bounds(heat, row);
  return i18n.t.volume.most(percent((column[row] ?? 0) / all), delay(lower), delay(upper));
}

/** Draws changes of the limit: a line, and above a chart of throughput what changed. */
function drawMarks(u: uPlot, marks: LimitChange[], words: boolean): void {
  const g = u.ctx;
  const accent = css('--accent');
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  let free = left;
  g.save();
  g.font = `600 ${11 * ratio}px ${css('--sans')}`;
  g.textAlign = 'left';
  g.setLineDash([]);
  for (const mark of marks) {
    const x = u.valToPos(Date.parse(mark.time) / 1000, 'x', true);
    if (!(x >= left && x <= left + width)) continue;
    g.strokeStyle = accent;
    g.lineWidth = 1.6 * ratio;
    g.beginPath();
    g.moveTo(x, top);
    g.lineTo(x, top + height);
    g.stroke();
    if (!words) continue;
    const text = marked(mark);
    const wide = g.measureText(text).width + 14 * ratio;
    const at = x + 6 * ratio + wide > left + width ? x - 6 * ratio - wide : x + 6 * ratio;
    if (at < free) continue;
    free = at + wide;
    g.fillStyle = css('--accent-bg');
    g.fillRect(at, top, wide, 20 * ratio);
    g.fillStyle = accent;
    g.textBaseline = 'middle';
    g.fillText(text, at + 7 * ratio, top + 10.5 * ratio);
  }
  g.restore();
}

/** Says from what to what a limit was changed, and by whom. */
export function marked(mark: LimitChange): string {
  const v = i18n.t.volume;
  const said = (bytes: number) => (bytes ? short(bytes / MIB) : i18n.t.noLimit);
  const [from, to] = [said(mark.fromBytesPerSecond), said(mark.toBytesPerSecond)];
  return `${v.changed(from, to)} ${v.by(mark.actor)}`;
}

const times = (past: History, n: number): number[] =>
  Array.from({ length: n }, (_, i) => past.startEpochSeconds + i * past.stepSeconds);

function hatch(colour: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  const size = 7 * devicePixelRatio;
  tile.width = tile.height = size;
  const g = tile.getContext('2d');
  if (!g) return colour;
  g.strokeStyle = colour;
  g.lineWidth = 2.4 * devicePixelRatio;
  g.beginPath();
  for (const d of [-size, 0, size]) {
    g.moveTo(d - 2, size + 2);
    g.lineTo(d + size + 2, -2);
  }
  g.stroke();
  return g.createPattern(tile, 'repeat') ?? colour;
}

function axes(values: (v: number) => string, size: number, splits?: uPlot.Axis.Splits): uPlot.Axis[] {
  const common = {
    stroke: css('--faint'),
    font: `11px ${css('--sans')}`,
    ticks: { show: false },
  };
  return [
    {
      ...common,
      grid: { show: false },
      size: 30,
      space: 90,
      values: (_, splits) => splits.map((s) => clock(s * 1000)),
    },
    {
      ...common,
      size,
      grid: { stroke: css('--line'), width: 1 },
      ...(splits ? { splits } : {}),
      values: (_, splits) => splits.map((s) => (s === null ? '' : values(s))),
    },
  ];
}

interface Place {
  width: number;
  height: number;
  says: (text: string) => void;
  heat: () => Heat | null;
  marks: () => LimitChange[];
}

const shared = ({ width, height }: Place): Pick<uPlot.Options, 'width' | 'height' | 'legend' | 'cursor' | 'padding'> => ({
  width,
  height,
  legend: { show: false },
  padding: [10, 8, 0, 0],
  cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
});

/** Labels the end of a line on the canvas, with a rim of the card's colour. */
function label(u: uPlot, text: string, x: number, y: number, colour: string): void {
  const g = u.ctx;
  g.save();
  g.font = `600 ${11.5 * devicePixelRatio}px ${css('--sans')}`;
  g.textAlign = 'right';
  g.lineWidth = 4 * devicePixelRatio;
  g.strokeStyle = css('--card');
  g.strokeText(text, x, y);
  g.fillStyle = colour;
  g.fillText(text, x, y);
  g.restore();
}

export function throughputChart(at: HTMLElement, data: Data, colour: number, place: Place): uPlot {
  const t = i18n.t.volume;
  const line = css(`--v${colour}`);
  const ink = css('--ink');
  const held = hatch(css('--held'));
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const options: uPlot.Options = {
    ...shared(place),
    scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.12)] } },
    axes: axes((v) => short(v), 46),
    series: [
      {},
      { label: t.use, stroke: line, width: 2, fill: faded(line, '33'), points: { show: false } },
      {
        label: t.limitMark,
        stroke: ink,
        width: 1.6,
        dash: [5, 3],
        points: { show: false },
        ...(stepped ? { paths: stepped } : {}),
      },
      { stroke: 'transparent', points: { show: false } },
      { label: t.waiting, stroke: 'transparent', points: { show: false } },
    ],
    bands: [{ series: [4, 3], fill: held as string }],
    hooks: {
      draw: [
        (u) => {
          drawMarks(u, place.marks(), true);
          const right = u.bbox.left + u.bbox.width - 6 * devicePixelRatio;
          const limit = lastOf(u.data[2]);
          const waits = lastOf(u.data[4]);
          const gap = 16 * devicePixelRatio;
          const atLimit = limit === null ? 0 : u.valToPos(limit, 'y', true);
          if (waits !== null) {
            const y = Math.min(u.valToPos(waits, 'y', true) - 5 * devicePixelRatio, atLimit - gap);
            label(u, t.waiting, right, Math.max(y, 20 * devicePixelRatio), css('--warn'));
          }
          if (limit !== null) label(u, `${t.limitMark} ${short(limit)}`, right, atLimit + gap, ink);
        },
      ],
      setCursor: [
        (u) => {
          const i = u.cursor.idx;
          if (i === null || i === undefined) return place.says('');
          const use = u.data[1]?.[i];
          const limit = u.data[2]?.[i];
          const said = limit ? i18n.t.of(short(use ?? 0), short(limit)) : short(use ?? 0);
          place.says(`${clock((u.data[0][i] ?? 0) * 1000, true)}  ${said} MiB/s`);
        },
      ],
    },
  };
  return new uPlot(options, data as uPlot.AlignedData, at);
}

/** Returns the powers of ten of a scale, so that the grid stays calm. */
const decades: uPlot.Axis.Splits = (_, __, min, max) => {
  const first = Math.ceil(Math.log10(min) - 1e-6);
  const n = Math.floor(Math.log10(max) + 1e-6) - first + 1;
  return Array.from({ length: Math.max(0, n) }, (___, i) => 10 ** (first + i));
};

const lastOf = (values: ArrayLike<number | null | undefined> | undefined): number | null =>
  values?.[values.length - 1] ?? null;

export function latencyChart(at: HTMLElement, data: Data, place: Place): uPlot {
  const t = i18n.t.volume;
  const ink = css('--ink');
  const tail = css('--p99');
  const rim = css('--card');
  const options: uPlot.Options = {
    ...shared(place),
    scales: {
      y: {
        distr: 3,
        range: (_, min, max) => {
          const heat = place.heat();
          const rows = heat && rowsOf(heat);
          if (heat && rows) {
            // A row of air to both sides.
            return [bounds(heat, rows[0])[0] / 2, Math.max(bounds(heat, rows[1])[1], max || 0) * 2];
          }
          return [10 ** Math.floor(Math.log10(min || 1e-4)), 10 ** Math.ceil(Math.log10(max || 1e-2))];
        },
      },
    },
    axes: axes(delay, 58, decades),
    series: [
      {},
      { stroke: rim, width: 4.5, points: { show: false } },
      { stroke: rim, width: 4.5, points: { show: false } },
      { label: t.p50, stroke: ink, width: 1.8, points: { show: false } },
      { label: t.p99, stroke: tail, width: 1.8, dash: [5, 3], points: { show: false } },
    ],
    hooks: {
      drawAxes: [
        (u) => {
          const heat = place.heat();
          if (heat) drawHeat(u, heat);
        },
      ],
      draw: [
        (u) => {
          drawMarks(u, place.marks(), false);
          const right = u.bbox.left + u.bbox.width - 6 * devicePixelRatio;
          const lift = 8 * devicePixelRatio;
          const p50 = lastOf(u.data[1]);
          const p99 = lastOf(u.data[2]);
          if (p99 !== null) label(u, 'p99', right, u.valToPos(p99, 'y', true) - lift, tail);
          if (p50 !== null) label(u, 'p50', right, u.valToPos(p50, 'y', true) + lift * 2.2, ink);
        },
      ],
      setCursor: [
        (u) => {
          const i = u.cursor.idx;
          if (i === null || i === undefined) return place.says('');
          const p50 = delay(u.data[1]?.[i] ?? 0);
          const p99 = delay(u.data[2]?.[i] ?? 0);
          const second = u.data[0][i] ?? 0;
          const most = mostAt(place.heat(), second);
          place.says(`${clock(second * 1000, true)}  p50 ${p50}, p99 ${p99}${most && `; ${most}`}`);
        },
      ],
    },
  };
  return new uPlot(options, data as uPlot.AlignedData, at);
}
