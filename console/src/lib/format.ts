// Numbers and times as text. Sizes are binary, as in the API.

import { i18n } from './i18n/index.svelte';

export const MIB = 1024 * 1024;
export const GIB = 1024 * MIB;

/** By language and digits after the point: making one takes a hundred times as long as using it. */
const formats = new Map<string, Intl.NumberFormat>();

/** Formats a number with at most so many digits after the point. */
export function decimal(n: number, digits = 0): string {
  const key = `${i18n.lang}${digits}`;
  let format = formats.get(key);
  if (!format) {
    format = new Intl.NumberFormat(i18n.lang, { maximumFractionDigits: digits });
    formats.set(key, format);
  }
  return format.format(n);
}

/** Formats a number with as many digits as a reader can use: three, or all before the point. */
export function short(n: number): string {
  return decimal(n, n !== 0 && Math.abs(n) < 9.95 ? 1 : 0);
}

/** Formats a rate in bytes a second as MiB/s, without the unit. */
export const mib = (bytes: number): string => short(bytes / MIB);

/** Formats a count, from ten thousand on in thousands. */
export function count(n: number): string {
  return n >= 9999.5 ? `${short(n / 1000)}k` : decimal(Math.round(n));
}

/** Formats a size in bytes with its unit. */
export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let place = 0;
  let value = n;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  const digits = place > 0 && value < 99.5 ? (value < 9.995 ? 2 : 1) : 0;
  return `${decimal(value, digits)} ${units[place]}`;
}

/** Formats a latency in seconds, as number and unit. */
export function latency(seconds: number): [string, string] {
  if (seconds <= 0) return ['–', ''];
  if (seconds < 0.000_995) return [short(seconds * 1e6), 'µs'];
  if (seconds < 0.9995) return [short(seconds * 1e3), 'ms'];
  return [short(seconds), 's'];
}

/** Formats a latency as one text. */
export const delay = (seconds: number): string => latency(seconds).join(' ').trim();

/** Formats a length of time in its two largest units. */
export function duration(seconds: number): string {
  const t = i18n.t.units;
  const s = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(s / 86400), t.day],
    [Math.floor(s / 3600) % 24, t.hour],
    [Math.floor(s / 60) % 60, t.minute],
    [s % 60, t.second],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return `0${t.gap}${t.second}`;
  return parts
    .slice(first, first + 2)
    .filter(([n]) => n > 0)
    .map(([n, unit]) => `${n}${t.gap}${unit}`)
    .join(t.gap);
}

/** Formats a moment by its clock, with the day where it is not today. */
export function clock(time: string | number | Date, seconds = false): string {
  const date = new Date(time);
  const today = date.toDateString() === new Date().toDateString();
  const hours: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', hour12: false };
  if (seconds) hours.second = '2-digit';
  const days: Intl.DateTimeFormatOptions = { day: 'numeric', month: 'short' };
  if (date.getFullYear() !== new Date().getFullYear()) days.year = 'numeric';
  return date.toLocaleString(i18n.lang, today ? hours : { ...days, ...hours });
}

/** Formats a day. */
export function day(time: string): string {
  const form: Intl.DateTimeFormatOptions = { day: 'numeric', month: 'short', year: 'numeric' };
  return new Date(time).toLocaleDateString(i18n.lang, form);
}

/** Formats a part of a whole in percent. */
export function percent(part: number): string {
  return `${Math.round(part * 100)} %`;
}

/** Returns the last part of a resource's name. */
export const last = (name: string): string => name.slice(name.lastIndexOf('/') + 1);

/** Reads a number that the API may send as text. */
export const number = (value: string | number | undefined): number => Number(value ?? 0);
