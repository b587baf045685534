// Light or dark: the system's choice until the user makes one.

class Theme {
  dark = $state(false);
  /** The page is laid out for paper. */
  printing = $state(false);

  start(): void {
    const system = matchMedia('(prefers-color-scheme: dark)');
    const kept = localStorage.getItem('weir.theme');
    this.set(kept ? kept === 'dark' : system.matches);
    const paper = matchMedia('print');
    this.printing = paper.matches;
    paper.addEventListener('change', () => (this.printing = paper.matches));
    system.addEventListener('change', () => {
      if (!localStorage.getItem('weir.theme')) this.set(system.matches);
    });
  }

  toggle(): void {
    this.set(!this.dark);
    localStorage.setItem('weir.theme', this.dark ? 'dark' : 'light');
  }

  private set(dark: boolean): void {
    this.dark = dark;
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  }
}

export const theme = new Theme();
