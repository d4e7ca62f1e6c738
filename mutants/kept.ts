import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'

/** What later runs need to know, by name. It is written at once, so a run that is stopped keeps it. */
export class Kept<T> {
  readonly #file: string
  readonly #values = new Map<string, T>()

  constructor(file: string) {
    this.#file = file
    if (!existsSync(file)) return
    for (const [name, value] of readFileSync(file, 'utf8')
      .split('\n')
      .flatMap(parsed<T>)) {
      if (value === undefined) this.#values.delete(name)
      else this.#values.set(name, value)
    }
  }

  get values(): ReadonlyMap<string, T> {
    return this.#values
  }

  set(name: string, value: T): void {
    this.#values.set(name, value)
    this.#append([name, value])
  }

  delete(name: string): void {
    if (this.#values.delete(name)) this.#append([name])
  }

  /** On a new line: the one before may have been cut off. */
  #append(line: Line<T>): void {
    mkdirSync(dirname(this.#file), { recursive: true })
    appendFileSync(this.#file, `\n${JSON.stringify(line)}`)
  }
}

/** A name without a value is deleted. */
type Line<T> = readonly [name: string, value?: T]

function parsed<T>(line: string): readonly Line<T>[] {
  try {
    return [JSON.parse(line)]
  } catch {
    return []
  }
}
