// Live figures: reads GET /v1/live as long as the page can be seen, goes on after breaks, and knows
// how old the newest figures are.

import { i18n } from './i18n/index.svelte';
import { type Column, type Conditions, type History, get, history, refusal } from './api';

export type Kind = 'POOL' | 'VOLUME' | 'CLIENT' | 'VOLUME_CLIENT';

type Figures = number[];

interface Frame {
  epochSeconds: number;
  columns?: Column[];
  limits?: string[];
  names?: [number, Kind, string][];
  rows: Figures[];
  gone?: number[];
}

/** A pool, volume or client with its figures of the last second. */
export class Row {
  /** First second of the time in which a limit has held its requests back without a break. */
  heldSince = 0;
  figures: Figures = [];

  constructor(
    readonly kind: Kind,
    readonly name: string,
    private readonly live: Live,
  ) {}

  get(column: Column): number {
    void this.live.second;
    const place = this.live.columns.indexOf(column);
    return place < 0 ? 0 : (this.figures[place + 1] ?? 0);
  }

  get bytes(): number {
    return this.get('readBytesPerSecond') + this.get('writeBytesPerSecond');
  }

  get operations(): number {
    return (
      this.get('readOperationsPerSecond') +
      this.get('writeOperationsPerSecond') +
      this.get('otherOperationsPerSecond')
    );
  }

  /** The limit that held requests back, as LEVEL/LIMIT; empty: none did for half of the second. */
  get boundBy(): string {
    if (this.get('boundSeconds') < HELD_SECONDS) return '';
    return this.live.limits[this.get('boundBy')] ?? '';
  }
}

/** Ten minutes of a row, a value for each second. */
export interface Trace {
  bytes: number[];
  limit: number[];
  bound: number[];
}

const LENGTH = 600;
const STALE_AFTER_SECONDS = 3;
/** Part of a second from which on a limit counts as holding; less are bursts that meet its edge. */
const HELD_SECONDS = 0.5;

class Live {
  columns: Column[] = [];
  limits: string[] = [];
  /** Second of the newest figures; everything that shows figures depends on it. */
  second = $state(0);
  /** Whole seconds since figures arrived. */
  age = $state(0);
  paused = $state(false);
  /** The server has no live figures at all. */
  missing = $state(false);
  trouble = $state('');
  conditions = $state.raw<Conditions | null>(null);
  /** Changes with every start of the server. */
  run = $state('');

  private rows = new Map<number, Row>();
  private names = new Map<string, Row>();
  private traces = new Map<string, { trace: Trace; watchers: number }>();
  private extra = new Map<string, number>();
  private lastId = '';
  private arrived = Date.now();
  private stop: AbortController | null = null;
  private timer = 0;
  private terms = '';

  get stale(): boolean {
    return !this.paused && this.age >= STALE_AFTER_SECONDS;
  }

  start(): void {
    document.addEventListener('visibilitychange', () => this.settle());
    this.settle();
  }

  end(): void {
    this.stop?.abort();
    this.stop = null;
    clearInterval(this.timer);
  }

  pause(on: boolean): void {
    this.paused = on;
    this.settle();
  }

  /** Selects more rows for as long as something shows them; returns the way back. */
  want(...terms: string[]): () => void {
    for (const term of terms) this.extra.set(term, (this.extra.get(term) ?? 0) + 1);
    queueMicrotask(() => this.settle());
    return () => {
      for (const term of terms) {
        const left = (this.extra.get(term) ?? 1) - 1;
        if (left > 0) this.extra.set(term, left);
        else this.extra.delete(term);
      }
      queueMicrotask(() => this.settle());
    };
  }

  /** Keeps ten minutes of a volume for as long as something shows them. */
  watch(volume: string): () => void {
    const known = this.traces.get(volume);
    if (known) {
      known.watchers += 1;
    } else {
      const trace: Trace = { bytes: [], limit: [], bound: [] };
      const entry = { trace, watchers: 1 };
      this.traces.set(volume, entry);
      history({ volume }, '10m').then(
        (past) => fill(trace, past),
        () => undefined,
      );
    }
    return () => {
      const entry = this.traces.get(volume);
      if (entry && --entry.watchers === 0) this.traces.delete(volume);
    };
  }

  trace(volume: string): Trace | undefined {
    void this.second;
    return this.traces.get(volume)?.trace;
  }

  row(name: string): Row | undefined {
    void this.second;
    return this.names.get(name);
  }

  all(kind: Kind): Row[] {
    void this.second;
    return [...this.rows.values()].filter((row) => row.kind === kind);
  }

  /** Begins or ends the stream, or takes it anew where something else is wanted of it. */
  settle(): void {
    const wanted = !document.hidden && !this.paused;
    const rows = ['pools', 'volumes:500', 'clients:50', ...this.extra.keys()].join(',');
    const terms = `rows=${encodeURIComponent(rows)}&language=${i18n.lang}`;
    if (wanted && this.stop && terms === this.terms) return;
    this.end();
    this.terms = terms;
    if (!wanted) return;
    this.arrived = Date.now();
    this.age = 0;
    this.timer = window.setInterval(() => {
      this.age = Math.floor((Date.now() - this.arrived) / 1000);
    }, 1000);
    this.stop = new AbortController();
    void this.follow(this.stop.signal, terms);
  }

  private async follow(signal: AbortSignal, terms: string): Promise<void> {
    for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 5000)) {
      try {
        const headers: Record<string, string> = { accept: 'text/event-stream' };
        if (this.lastId) headers['last-event-id'] = this.lastId;
        const reply = await fetch(`/v1/live?${terms}`, {
          headers,
          signal,
          credentials: 'same-origin',
        });
        if (!reply.ok || !reply.body) throw await refusal(reply);
        this.trouble = '';
        this.missing = false;
        pause = 250;
        await this.read(reply.body);
      } catch (e) {
        if (signal.aborted) return;
        this.missing = (e as { code?: number }).code === 404;
        this.trouble = e instanceof Error ? e.message : String(e);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.pipeThrough(new TextDecoderStream() as never).getReader();
    let text = '';
    for (;;) {
      const { value, done } = (await reader.read()) as { value?: string; done: boolean };
      if (done) return;
      text += value ?? '';
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        this.event(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }

  private event(text: string): void {
    let name = '';
    let data = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('event:')) name = line.slice(6).trim();
      else if (line.startsWith('data:')) data += line.slice(5);
      else if (line.startsWith('id:')) this.lastId = line.slice(3).trim();
    }
    if (!data) return;
    const value: unknown = JSON.parse(data);
    if (name === 'conditions') {
      this.conditions = value as Conditions;
    } else if (name === 'whole' || name === 'rows' || name === 'past') {
      this.frame(name, value as Frame);
    } else if (name === 'bye' || name === 'dropped') {
      this.trouble = (value as { message?: string }).message ?? name;
    }
  }

  private frame(event: 'whole' | 'rows' | 'past', frame: Frame): void {
    const before = this.names;
    if (event === 'whole') {
      this.rows = new Map();
      this.names = new Map();
      this.columns = frame.columns ?? this.columns;
      this.limits = frame.limits ?? this.limits;
    }
    for (const [id, kind, name] of frame.names ?? []) {
      const row = before.get(name) ?? new Row(kind, name, this);
      this.rows.set(id, row);
      this.names.set(name, row);
    }
    for (const id of frame.gone ?? []) {
      const row = this.rows.get(id);
      if (row) this.names.delete(row.name);
      this.rows.delete(id);
    }
    for (const figures of frame.rows) {
      const row = this.rows.get(figures[0] ?? -1);
      if (row) row.figures = figures;
    }
    for (const row of this.rows.values()) {
      if (row.get('boundSeconds') < HELD_SECONDS) row.heldSince = 0;
      else row.heldSince ||= frame.epochSeconds;
    }
    const missed = Math.min(frame.epochSeconds - this.second, LENGTH);
    for (const [name, { trace }] of this.traces) {
      for (let i = 0; i < (this.second ? missed : 1); i += 1) push(trace, this.names.get(name));
    }
    if (event === 'past') return;
    const run = this.lastId.split('.')[0] ?? '';
    if (run !== this.run) this.run = run;
    this.second = frame.epochSeconds;
    this.arrived = Date.now();
    this.age = 0;
  }
}

function push(trace: Trace, row: Row | undefined): void {
  trace.bytes.push(row?.bytes ?? 0);
  trace.limit.push(row?.get('limitBytesPerSecond') ?? 0);
  trace.bound.push(row?.get('boundSeconds') ?? 0);
  for (const values of [trace.bytes, trace.limit, trace.bound]) {
    if (values.length > LENGTH) values.splice(0, values.length - LENGTH);
  }
}

function fill(trace: Trace, past: History): void {
  const column = (name: Column) => (past.figures[name] ?? []).map((v) => v ?? 0);
  const read = column('readBytesPerSecond');
  const write = column('writeBytesPerSecond');
  const room = LENGTH - trace.bytes.length;
  if (room <= 0) return;
  trace.bytes.unshift(...read.map((r, i) => r + (write[i] ?? 0)).slice(-room));
  trace.limit.unshift(...column('limitBytesPerSecond').slice(-room));
  trace.bound.unshift(...column('boundSeconds').slice(-room));
}

export const live = new Live();

/** Reads the conditions once, for a server whose stream has not begun. */
export async function readConditions(): Promise<void> {
  live.conditions = await get<Conditions>('/v1/conditions');
}
