/** Whether the error is a redirect. Next redirects by throwing. */
export function isRedirect(error: unknown): boolean {
  const digest = typeof error === 'object' && error !== null && 'digest' in error ? error.digest : ''
  return String(digest).startsWith('NEXT_REDIRECT')
}
