declare module 'cloudflare:workers' {
  /** What the tests and the documents bind. */
  export const env: {
    readonly HYPERDRIVE: { readonly connectionString: string }
    readonly DATABASE_URL: string
    readonly HTTP_DATABASE: string
  }
  export function waitUntil(promise: Promise<unknown>): void
}
