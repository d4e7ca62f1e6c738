declare module 'cloudflare:workers' {
  /** What the tests bind. */
  export const env: { readonly HTTP_DATABASE: string; readonly DATABASE_URL: string }
  export function waitUntil(promise: Promise<unknown>): void
}
