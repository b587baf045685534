// The signed-in user. Scripts never hold a token: the browser keeps a cookie that they cannot read.

class Session {
  /** The server wants a token that this browser has not shown, or shows no longer. */
  signedOut = $state(false);

  end(): void {
    this.signedOut = true;
  }

  /** Exchanges a token for the cookie. */
  async begin(token: string): Promise<string | null> {
    const reply = await fetch('/v1/logins', {
      method: 'POST',
      credentials: 'same-origin',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token }),
    });
    if (reply.ok) {
      location.reload();
      return null;
    }
    const body = await reply.json().catch(() => ({}));
    return body.error?.message ?? `${reply.status} ${reply.statusText}`;
  }

  async leave(): Promise<void> {
    await fetch('/v1/logins', { method: 'DELETE', credentials: 'same-origin' });
    this.signedOut = true;
  }
}

export const session = new Session();
