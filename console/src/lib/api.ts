// Requests to the public API: the same paths, roles and refusals that every other client gets.

import { i18n } from './i18n/index.svelte';
import type { components } from './netapp';
import { session } from './session.svelte';

type Schemas = components['schemas'];
export type Pool = Schemas['StoragePool'];
export type Volume = Schemas['Volume'];
export type Snapshot = Schemas['Snapshot'];

/** Columns of figures, as the server's live and historical rows have them. */
export type Column =
  | 'readBytesPerSecond'
  | 'writeBytesPerSecond'
  | 'readOperationsPerSecond'
  | 'writeOperationsPerSecond'
  | 'otherOperationsPerSecond'
  | 'p50Seconds'
  | 'p99Seconds'
  | 'waitingRequests'
  | 'waitingBytes'
  | 'boundSeconds'
  | 'boundBy'
  | 'limitBytesPerSecond';

export interface History {
  stepSeconds: number;
  startEpochSeconds: number;
  endEpochSeconds: number;
  limits: string[];
  figures: Partial<Record<Column, (number | null)[]>>;
}

export interface Condition {
  kind: string;
  severity: 'ERROR' | 'WARNING' | 'INFO';
  resource: string;
  since: string;
  message: string;
  action?: string;
  command?: string;
  details?: Record<string, string | number>;
}

export interface Conditions {
  time: string;
  headline: string;
  severity: 'ERROR' | 'WARNING' | 'INFO' | 'OK';
  volumes: number;
  volumesWaiting: number;
  conditions: Condition[];
  omitted?: number;
}

export interface Pair {
  configured: boolean;
  side?: string;
  partner?: string;
  role?: string;
  state?: string;
  inSync?: boolean;
  partnerConnected?: boolean;
  synchronising?: boolean;
  lagBytes?: number;
  behindSeconds?: number;
  roundTripSeconds?: number;
  cost?: { changes: number; meanSeconds: number; p99Seconds: number };
  sentPerWritten?: number;
  trouble?: string;
  headline?: string;
  witness?: { address: string; repliedSecondsAgo?: number; trouble?: string };
  takeoverSeconds?: number;
  details?: { name: string; value: string }[];
}

export interface Server {
  version: string;
  startTime: string;
  uptimeSeconds: number;
  node: string;
  addresses: { protocol: string; address: string }[];
  certificates: { use: string; subject?: string; notBefore: string; notAfter: string; daysLeft: number }[];
  memory: { budgetBytes: number; residentBytes?: number };
  dataFolder: string;
  aggregate: {
    sizeBytes: number;
    usedBytes: number;
    freeBytes: number;
    provisionedBytes: number;
    readOnly: boolean;
  };
  caller: { name: string; role: 'VIEWER' | 'EDITOR' | 'ADMIN'; mayChange: boolean };
}

/** How many figures reach the published ones, and the least and the greatest multiple of them. */
export interface Reach {
  name?: string;
  figures: number;
  reached: number;
  leastRatio: number;
  greatestRatio: number;
}

export interface BenchmarkRow {
  column: string;
  side: string;
  value: number;
  least: number;
  greatest: number;
  p99Seconds?: number;
  boundBy: string[];
  durability: string;
  published: { name: string; value: number }[];
}

/** A run of `weir bench`; lists have it without tables. */
export interface Benchmark {
  name: string;
  headline: string;
  title: string;
  label: string;
  startTime: string;
  state: string;
  targets: { label: string; protocol: string; generator: string }[];
  hasReport: boolean;
  publishedSet?: string;
  publishedClients?: number;
  publishedCores?: number;
  comparison?: Reach;
  comparisonPerCore?: Reach;
  tiers?: Reach[];
  command?: string;
  clients?: number;
  cores?: number;
  repetitions?: number;
  warnings?: string[];
  tables?: { heading: string; load: string; axis: string; unit: string; rows: BenchmarkRow[] }[];
}

export interface Benchmarks {
  headline: string;
  folder: string;
  benchmarks: Benchmark[];
  unreadable: { name: string; message: string }[];
}

/** Numbers of operations by time and latency: a column for each step, null where the server did not look. */
export interface Heat {
  stepSeconds: number;
  startEpochSeconds: number;
  endEpochSeconds: number;
  /** Upper bounds of the rows; the last row has none. */
  upperSeconds: number[];
  operations: (number[] | null)[];
  /** Where the time of an operation of the last minute went: a sentence, and one that says what follows. */
  headline: string;
  details: string;
  /** Means of an operation of the last minute. */
  recent: { seconds: number; operations: number; meanSeconds: number; waitSeconds: Record<Wait, number> };
}

/** What operations wait for: limits of a level, the intent log, the device, what other clients hold. */
export type Wait = 'pool' | 'volume' | 'client' | 'log' | 'device' | 'claim';

/** A change of a limit, and who made it. */
export interface LimitChange {
  time: string;
  actor: string;
  resource: string;
  fromBytesPerSecond: number;
  toBytesPerSecond: number;
}

/** The result of a change that was only checked. */
export interface Checked<T> {
  response?: T;
  preview?: {
    headline: string;
    throughputMibps?: number;
    limitSource?: string;
    pool?: {
      capacityGib: number;
      availableCapacityGib: number;
      totalThroughputMibps?: number;
      availableThroughputMibps?: number;
    };
  };
}

/** A refusal of the server, with the rule's name and numbers. */
export class Refusal extends Error {
  code: number;
  reason: string;
  metadata: Record<string, string>;
  /** What would fit instead, in the language that is shown; empty where it is not about an amount. */
  headline: string;

  constructor(code: number, message: string, reason: string, metadata: Record<string, string>, headline: string) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.metadata = metadata;
    this.headline = headline;
  }
}

interface ErrorBody {
  error?: {
    code?: number | string;
    message?: string;
    details?: { reason?: string; metadata?: Record<string, string>; locale?: string; message?: string }[];
  };
}

/** Makes a refusal of a reply that is not 2xx. */
export async function refusal(reply: Response): Promise<Refusal> {
  const body: ErrorBody = await reply.json().catch(() => ({}));
  const info = body.error?.details?.find((d) => d.reason !== undefined);
  const sentence = body.error?.details?.find((d) => d.locale !== undefined);
  const message = body.error?.message ?? `${reply.status} ${reply.statusText}`;
  if (reply.status === 401) session.end();
  return new Refusal(reply.status, message, info?.reason ?? '', info?.metadata ?? {}, sentence?.message ?? '');
}

/** Sends a request and returns the reply's JSON. */
export async function call<T>(
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  // Sentences come in the language that is shown.
  const headers: Record<string, string> = { 'accept-language': i18n.lang };
  const init: RequestInit = { method, credentials: 'same-origin', cache: 'no-store', headers };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    headers['content-type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  const reply = await fetch(path, init);
  if (!reply.ok) throw await refusal(reply);
  return reply.json();
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> =>
  call('GET', path, undefined, signal);

/** Returns all pages of a collection. */
export async function list<T>(path: string, collection: string): Promise<T[]> {
  const all: T[] = [];
  let token = '';
  do {
    const query = `pageSize=1000${token && `&pageToken=${encodeURIComponent(token)}`}`;
    type Page = Record<string, T[] | undefined> & { nextPageToken?: string };
    const page: Page = await get(`${path}?${query}`);
    all.push(...(page[collection] ?? []));
    token = page.nextPageToken ?? '';
  } while (token);
  return all;
}

/** Checks a change without making it. */
export function check<T>(
  method: 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Checked<T>> {
  return call(method, `${path}${path.includes('?') ? '&' : '?'}validateOnly=true`, body, signal);
}

/** Reads minutes or hours of figures. */
export function history(what: { volume?: string; pool?: string; client?: string }, window: string) {
  const query = new URLSearchParams({ ...what, window });
  return get<History>(`/v1/history?${query}`);
}
