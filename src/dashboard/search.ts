import { type Html, html } from './html.ts'
import { href, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'

/** Finds keys of a limit by a part, or one key in all limits. It is posted, so no address has the text. */
export function searchForm(limit: Limit | undefined, { token }: Looking): Html {
  const part = limit && (limit.isHashed ? ', or a part of a hash' : ', or a part of it')
  return html`<form method="post" class="line" role="search" action="${href({ limit: limit?.name })}"><input type="hidden" name="token" value="${token}">
<label>A key${part}<br><input name="key" required autocomplete="off" autocapitalize="none" spellcheck="false"></label>
${limit ? html`<button class="act" name="do" value="search">Search</button><button name="do" value="open">Open this key</button>` : html`<button class="act" name="do" value="open">Open</button>`}
${limit?.isHashed ? html`<small>Keys are stored as hashes. Open a whole key, which the page hashes, or search for a part of a hash.</small>` : undefined}</form>`
}

/** A whole hash, which can be opened. */
export const HASH: RegExp = /^[0-9a-f]{64}$/
