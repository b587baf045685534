// Pages by the fragment of the address: #/volume/NAME?ask=500.

function read(): { page: string; name: string; query: URLSearchParams } {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [page = '', ...rest] = path.split('/');
  const name = rest.map(decodeURIComponent).join('/');
  return { page: page || 'overview', name, query: new URLSearchParams(query) };
}

class Router {
  at = $state.raw(read());

  constructor() {
    addEventListener('hashchange', () => {
      const before = this.at;
      this.at = read();
      if (before.page === this.at.page && before.name === this.at.name) return;
      scrollTo(0, 0);
      document.getElementById('main')?.focus({ preventScroll: true });
    });
  }
}

export const router = new Router();

/** Returns the address of a page, or of a resource's page. */
export function to(page: string, name = '', query: Record<string, string | number> = {}): string {
  const path = name ? `${page}/${name.split('/').map(encodeURIComponent).join('/')}` : page;
  const text = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)])).toString();
  return `#/${path}${text && `?${text}`}`;
}

export function go(address: string): void {
  location.hash = address;
}
