// Work that is repeated while the page can be seen, and not otherwise.

/** Runs `work` now and every so many milliseconds while the page is visible; returns the way to end it. */
export function every(milliseconds: number, work: () => unknown): () => void {
  let timer = 0;
  const settle = (): void => {
    clearInterval(timer);
    if (document.hidden) return;
    void work();
    timer = window.setInterval(work, milliseconds);
  };
  settle();
  document.addEventListener('visibilitychange', settle);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', settle);
  };
}
