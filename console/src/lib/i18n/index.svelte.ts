// The language: the browser's until the user chooses another.

import { en } from './en';
import { ja } from './ja';

export type Texts = typeof en;
export type Language = 'en' | 'ja';

const texts: Record<Language, Texts> = { en, ja };

class I18n {
  lang = $state<Language>('en');

  start(): void {
    const kept = localStorage.getItem('weir.language');
    const wanted = kept ?? navigator.language;
    this.show(wanted.startsWith('ja') ? 'ja' : 'en');
  }

  set(lang: Language): void {
    localStorage.setItem('weir.language', lang);
    this.show(lang);
  }

  get t(): Texts {
    return texts[this.lang];
  }

  private show(lang: Language): void {
    this.lang = lang;
    document.documentElement.lang = lang;
  }
}

export const i18n = new I18n();
