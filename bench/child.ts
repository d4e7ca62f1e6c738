import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A script in the folder of a module, whether it is compiled or not. */
export function scriptNextTo(module: string, name: string): URL {
  return new URL(`${name}${extname(new URL(module).pathname)}`, module)
}

/** A process that runs a script and answers each message with one. */
export class Child {
  readonly #process: ChildProcess
  readonly #gone: Promise<never>

  constructor(script: URL, flags: readonly string[] = []) {
    const path = fileURLToPath(script)
    this.#process = fork(path, { execArgv: [...process.execArgv, ...flags] })
    this.#gone = once(this.#process, 'exit').then(([code]) => {
      throw new Error(`${path} ended with ${code}.`)
    })
    this.#gone.catch(() => {})
  }

  async ask<Answer>(message: object): Promise<Answer> {
    const answer = once(this.#process, 'message')
    this.#process.send(message)
    const [content] = await Promise.race([answer, this.#gone])
    return content
  }

  end(): void {
    this.#process.kill()
  }
}

/**
 * The child's side: answers each message. Only {@link Child} sends messages. An error ends the process, and the
 * parent notices that.
 */
export function answerEach<Message, Answer>(answer: (message: Message) => Promise<Answer>): void {
  process.on('message', async (message) => process.send?.(await answer(message as Message)))
}
