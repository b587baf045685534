// Pools, volumes and the server as the public API lists them, joined with their live figures.

import { get, list, type Pair, type Pool, type Server, type Volume } from './api';
import { GIB, MIB, last, number } from './format';
import { i18n } from './i18n/index.svelte';
import { live } from './live.svelte';

export const HOME = 'projects/weir/locations/local';
const REFRESH_MILLISECONDS = 15_000;

/** Returns `projects/P/locations/L` of a resource's name. */
export const parent = (name: string): string => name.split('/').slice(0, 4).join('/');

/** Returns the project of a resource's name. */
export const project = (name: string): string => name.split('/')[1] ?? '';

/** Returns the location of a resource's name. */
export const location = (name: string): string => name.split('/')[3] ?? '';

export const poolOf = (volume: Volume): string =>
  `${parent(volume.name ?? '')}/storagePools/${last(volume.storagePool ?? '')}`;

class Store {
  pools = $state.raw<Pool[]>([]);
  volumes = $state.raw<Volume[]>([]);
  server = $state.raw<Server | null>(null);
  pair = $state.raw<Pair | null>(null);
  loaded = $state(false);
  trouble = $state('');
  private timer = 0;

  byPool = $derived.by(() => {
    const all = new Map<string, Volume[]>();
    for (const volume of this.volumes) {
      const pool = poolOf(volume);
      const others = all.get(pool);
      if (others) others.push(volume);
      else all.set(pool, [volume]);
    }
    return all;
  });

  private places = $derived(
    new Map(
      [...this.volumes]
        .sort((a, b) => (a.createTime ?? '').localeCompare(b.createTime ?? ''))
        .map((volume, place) => [volume.name ?? '', place]),
    ),
  );

  /** All pools as pictures, once a second for all who show them. */
  pictures = $derived(new Map(this.pools.map((pool) => [pool.name ?? '', picture(pool)])));

  private named = $derived(new Map(this.volumes.map((v) => [v.name ?? '', v])));

  start(): void {
    const again = async () => {
      if (!document.hidden) await this.load();
      const pause = REFRESH_MILLISECONDS * (this.volumes.length > 1000 ? 4 : 1);
      this.timer = window.setTimeout(again, pause);
    };
    void again();
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.timer);
      if (!document.hidden) void again();
    });
  }

  /** Reads the lists anew, of all projects and locations that are known. */
  async load(): Promise<void> {
    try {
      const names = [...live.all('VOLUME'), ...live.all('POOL')].map((row) => row.name);
      const projects = new Set(['weir', ...names.map(project).filter(Boolean)]);
      const pools: Pool[] = [];
      const volumes: Volume[] = [];
      for (const p of projects) {
        const from = `/v1/projects/${p}/locations/-`;
        pools.push(...(await list<Pool>(`${from}/storagePools`, 'storagePools')));
        volumes.push(...(await list<Volume>(`${from}/volumes`, 'volumes')));
      }
      const [server, pair] = await Promise.all([
        get<Server>('/v1/server').catch(() => null),
        get<Pair>('/v1/pair').catch(() => null),
      ]);
      const size = (pool: Pool) => number(pool.totalThroughputMibps);
      pools.sort((a, b) => size(b) - size(a) || (a.name ?? '').localeCompare(b.name ?? ''));
      this.pools = pools;
      this.volumes = volumes;
      this.server = server;
      this.pair = pair;
      this.trouble = '';
      this.loaded = true;
    } catch (e) {
      this.trouble = e instanceof Error ? e.message : String(e);
    }
  }

  pool(name: string): Pool | undefined {
    return this.pools.find((p) => p.name === name);
  }

  volume(name: string): Volume | undefined {
    return this.named.get(name);
  }

  /** Whether the user may change things: `EDITOR` or more. */
  get mayChange(): boolean {
    return this.server?.caller?.mayChange ?? true;
  }

  get role(): 'VIEWER' | 'EDITOR' | 'ADMIN' {
    return this.server?.caller?.role ?? 'ADMIN';
  }

  /** Returns the number of a volume's colour, which it has on every page. */
  colour(name: string): number {
    return ((this.places.get(name) ?? 0) % 7) + 1;
  }
}

export const store = new Store();

/** Returns a volume's limit in MiB/s; 0: it has none of its own. */
export function limitOf(volume: Volume, pool: Pool | undefined): number {
  const inForce = live.row(volume.name ?? '')?.get('limitBytesPerSecond');
  if (inForce) return inForce / MIB;
  if (volume.throughputMibps) return volume.throughputMibps;
  if (!pool || pool.serviceLevel === 'FLEX') return 0;
  return shareOf(volume, pool);
}

/** Returns what a volume's capacity is worth of its pool's throughput, in MiB/s. */
export function shareOf(volume: Volume, pool: Pool): number {
  const whole = number(pool.capacityGib);
  const total = number(pool.totalThroughputMibps);
  return whole > 0 ? (total * number(volume.capacityGib)) / whole : 0;
}

export interface Segment {
  name: string;
  label: string;
  colour: number;
  /** Width: the limit, or the share, in MiB/s. */
  width: number;
  limit: number;
  use: number;
  waiting: number;
  waitingBytes: number;
  bound: string;
}

export interface PoolPicture {
  name: string;
  total: number;
  use: number;
  free: number;
  /** Volumes that a limit holds back. */
  waiting: number;
  shared: boolean;
  segments: Segment[];
}

/** Most segments of a picture; the other volumes are one more. */
const SEGMENTS = 24;

/** Returns a pool as a picture: a segment for each volume, as wide as its limit. `keep` is never among the others. */
export function picture(pool: Pool, keep = ''): PoolPicture {
  const volumes = store.byPool.get(pool.name ?? '') ?? [];
  const total = number(pool.totalThroughputMibps);
  const shared = pool.serviceLevel === 'FLEX';
  const given = volumes.reduce((sum, v) => sum + number(v.capacityGib), 0);
  const segments = volumes.map((volume): Segment => {
    const name = volume.name ?? '';
    const row = live.row(name);
    const limit = limitOf(volume, pool);
    const share = given > 0 ? (total * number(volume.capacityGib)) / given : 0;
    return {
      name,
      label: last(name),
      colour: store.colour(name),
      width: shared ? share : limit || number(volume.capacityGib) / 64,
      limit: shared ? share : limit,
      use: (row?.bytes ?? 0) / MIB,
      waiting: row?.get('waitingRequests') ?? 0,
      waitingBytes: row?.get('waitingBytes') ?? 0,
      bound: row?.boundBy ?? '',
    };
  });
  segments.sort((a, b) => b.width - a.width || a.label.localeCompare(b.label));
  const allotted = segments.reduce((sum, s) => sum + s.limit, 0);
  const use = segments.reduce((sum, s) => sum + s.use, 0);
  const waiting = segments.filter((s) => s.bound).length;
  return {
    name: last(pool.name ?? ''),
    total,
    use,
    waiting,
    free: total && !shared ? Math.max(0, total - allotted) : 0,
    shared,
    segments: segments.length > SEGMENTS + 1 ? few(segments, keep) : segments,
  };
}

/** Returns the segments that wait or are widest, and one for all others. */
function few(all: Segment[], keep: string): Segment[] {
  const rank = (s: Segment) => (s.name === keep ? 2 : s.bound ? 1 : 0);
  const chosen = [...all].sort((a, b) => rank(b) - rank(a) || b.width - a.width).slice(0, SEGMENTS);
  const shown = new Set(chosen);
  const rest = all.filter((s) => !shown.has(s));
  const sum = (f: (s: Segment) => number) => rest.reduce((n, s) => n + f(s), 0);
  const others: Segment = {
    name: '', label: i18n.t.others(rest.length), colour: 0,
    width: sum((s) => s.width), limit: sum((s) => s.limit), use: sum((s) => s.use),
    waiting: sum((s) => s.waiting), waitingBytes: sum((s) => s.waitingBytes), bound: '',
  };
  return [...all.filter((s) => shown.has(s)), others];
}

/** Returns the capacity that is used of a volume, and all of it, in bytes. */
export function space(volume: Volume): { used: number; size: number } {
  return {
    used: number(volume.spaceStatus?.usedBytes),
    size: number(volume.capacityGib) * GIB,
  };
}
