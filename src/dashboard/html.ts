/** HTML that needs no escaping any more. */
export class Html {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

type HtmlPart = Html | string | number | undefined | readonly HtmlPart[]

/** HTML with values. Every value is escaped, except HTML that was made by this function. */
export function html(texts: TemplateStringsArray, ...parts: readonly HtmlPart[]): Html {
  return new Html(texts.reduce((before, text, place) => before + textOf(parts[place - 1]) + text))
}

function textOf(part: HtmlPart): string {
  if (part === undefined) return ''
  if (part instanceof Html) return part.text
  if (typeof part === 'string' || typeof part === 'number') return escaped(String(part))
  return part.map(textOf).join('')
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** The text for an element or a quoted attribute. */
function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] as string)
}
