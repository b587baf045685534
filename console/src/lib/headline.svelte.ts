// The answer of a page in a sentence, as the server says it.

import { get } from './api';
import { every } from './every';
import { i18n } from './i18n/index.svelte';

/** Milliseconds from one look at the sentence to the next. */
const AGAIN = 2000;

export interface Headline {
  /** The sentence; empty until the server has said it. */
  readonly text: string;
}

/** Keeps the sentence of a page for as long as its component lives. `volume`: of which volume, where the page is of one. */
export function headline(page: string, volume?: () => string): Headline {
  let text = $state('');
  $effect(() => {
    const of = volume?.();
    if (of === '') return;
    const query = `page=${page}&language=${i18n.lang}${of ? `&volume=${encodeURIComponent(of)}` : ''}`;
    let current = true;
    const stop = every(AGAIN, async () => {
      // One that fails leaves the last sentence; the page itself tells of a lost server.
      const said = await get<{ headline: string }>(`/v1/headline?${query}`).catch(() => null);
      if (said && current) text = said.headline;
    });
    return () => {
      current = false;
      stop();
    };
  });
  return {
    get text() {
      return text;
    },
  };
}
