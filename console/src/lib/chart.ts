// Charts of a volume's history, drawn by uPlot.

import uPlot from 'uplot';
import type { History } from './api';
import { MIB, clock, delay, short } from './format';
import { i18n } from './i18n/index.svelte';

type Values = (number | null)[];
export type Data = [number[], ...Values[]];

const css = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns a colour token with an opacity, as canvas takes it. */
const faded = (hex: string, alpha: string): string => `${hex}${alpha}`;

/** Returns times, use, limit and what waits above it, in MiB/s and MiB. */
export function throughputData(past: History): Data {
  const f = past.figures;
  const read = f.readBytesPerSecond ?? [];
  const use = read.map((r, i) => (r === null ? null : (r + (f.writeBytesPerSecond?.[i] ?? 0)) / MIB));
  const limit = read.map((_, i) => (f.limitBytesPerSecond?.[i] ?? 0) / MIB || null);
  const waiting = use.map((u, i) => {
    const bytes = f.waitingBytes?.[i] ?? 0;
    return u === null || !bytes ? null : Math.max(u, limit[i] ?? 0) + bytes / MIB;
  });
  const base = use.map((u, i) => (waiting[i] === null || u === null ? null : Math.max(u, limit[i] ?? 0)));
  return [times(past, read.length), use, limit, base, waiting];
}

/** Returns times, p50 and p99 in seconds. */
export function latencyData(past: History): Data {
  const some = (values: Values = []) => values.map((v) => v || null);
  const p50 = some(past.figures.p50Seconds);
  return [times(past, p50.length), p50, some(past.figures.p99Seconds)];
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
  const first = Math.round(Math.log10(min));
  const n = Math.round(Math.log10(max)) - first + 1;
  return Array.from({ length: n }, (___, i) => 10 ** (first + i));
};

const lastOf = (values: ArrayLike<number | null | undefined> | undefined): number | null =>
  values?.[values.length - 1] ?? null;

export function latencyChart(at: HTMLElement, data: Data, place: Place): uPlot {
  const t = i18n.t.volume;
  const ink = css('--ink');
  const tail = css('--v4');
  const options: uPlot.Options = {
    ...shared(place),
    scales: {
      y: {
        distr: 3,
        range: (_, min, max) => [
          10 ** Math.floor(Math.log10(min || 1e-4)),
          10 ** Math.ceil(Math.log10(max || 1e-2)),
        ],
      },
    },
    axes: axes(delay, 58, decades),
    series: [
      {},
      { label: t.p50, stroke: ink, width: 2, points: { show: false } },
      { label: t.p99, stroke: tail, width: 2, dash: [5, 3], points: { show: false } },
    ],
    hooks: {
      draw: [
        (u) => {
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
          place.says(`${clock((u.data[0][i] ?? 0) * 1000, true)}  p50 ${p50}, p99 ${p99}`);
        },
      ],
    },
  };
  return new uPlot(options, data as uPlot.AlignedData, at);
}
