// Keys of one letter, which can be switched off.

import { live } from './live.svelte';
import { go, router, to } from './router.svelte';

export const PAGES: Record<string, string> = {
  o: 'overview', p: 'pools', v: 'volumes', c: 'clients', s: 'snapshots', r: 'replication',
  b: 'benchmarks', a: 'audit', t: 'access', n: 'new',
};

class Keys {
  on = $state(localStorage.getItem('weir.keys') !== 'off');
  search = $state(false);
  help = $state(false);
  /** Volume that `t` tries a limit on: the page's own, or the one that waits most. */
  subject = $state('');
  private led = 0;

  set(on: boolean): void {
    this.on = on;
    localStorage.setItem('weir.keys', on ? 'on' : 'off');
  }

  start(): void {
    addEventListener('keydown', (e) => this.key(e));
  }

  private key(e: KeyboardEvent): void {
    const at = e.target as HTMLElement;
    if (!this.on || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    if (at.closest('input:not([type=checkbox]), select, textarea, [contenteditable]')) return;
    if (Date.now() - this.led < 1500) {
      this.led = 0;
      const page = PAGES[e.key];
      if (page) {
        e.preventDefault();
        go(to(page));
      }
      return;
    }
    const acts: Record<string, () => void> = {
      g: () => (this.led = Date.now()),
      '/': () => (this.search = true),
      '?': () => (this.help = true),
      p: () => live.pause(!live.paused),
      t: () => this.subject && go(to('try', this.subject)),
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      j: () => step(1),
      k: () => step(-1),
    };
    const act = acts[e.key];
    if (!act) return;
    if (e.key.startsWith('Arrow') && !at.closest('table') && router.at.page !== 'volumes') return;
    e.preventDefault();
    act();
  }
}

/** Moves the focus to the next or the previous row of a table. */
function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('main tbody a.nm')];
  const now = rows.findIndex((row) => row.closest('tr')?.contains(document.activeElement));
  const next = rows[now < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, now + by))];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

export const keys = new Keys();
