import { type Html, html } from './html.ts'
import { href } from './layout.ts'
import type { Limit } from './limit.ts'

/** Finds keys of a limit by a part, or one key in all limits. It is posted, so no address has the text. */
export function searchForm(limit: Limit | undefined, token: string): Html {
  const canSearch = limit !== undefined && !limit.isHashed
  return html`<form method="post" class="line" role="search" action="${href({ limit: limit?.name })}"><input type="hidden" name="token" value="${token}">
<label>${canSearch ? 'A key, or a part of it' : 'A key'}<br><input name="key" required autocomplete="off" autocapitalize="none" spellcheck="false"></label>
${canSearch ? html`<button class="act" name="do" value="search">Search</button><button name="do" value="open">Open this key</button>` : html`<button class="act" name="do" value="open">Open</button>${limit?.isHashed ? html`<button name="do" value="open hash">Open this hash</button>` : undefined}`}
${limit?.isHashed ? html`<small>Keys are stored as hashes. Type the whole key, which the page hashes, or a hash.</small>` : undefined}</form>`
}
