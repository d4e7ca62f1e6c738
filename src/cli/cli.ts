import { createRequire } from 'node:module'
import { check } from './check/check.ts'
import { HELP } from './help.ts'
import { init } from './init.ts'
import { messagesOf, type Output, redact, safe } from './output.ts'
import { storage } from './storage.ts'
import { top } from './top/top.ts'

/** A command. It gets the arguments after its name, and returns the exit code. */
type Command = (args: string[], output: Output) => Promise<number>

const COMMANDS: ReadonlyMap<string | undefined, Command> = new Map([
  ['init', init],
  ['storage', storage],
  ['check', check],
  ['top', top],
])

/** The exit code of a failed command. */
const FAILED = 2

/** Runs the command that the arguments name, and returns the exit code. Prints no passwords and no escapes. */
export async function cli([name, ...args]: readonly string[], console: Output): Promise<number> {
  const output: Output = {
    log: (text: string) => console.log(safe(redact(text))),
    error: (text: string) => console.error(safe(redact(text))),
    screen: console.screen,
  }
  try {
    const command = COMMANDS.get(name)
    if ([name, ...args].some((word) => word === '--help' || word === '-h')) output.log(HELP)
    else if (name === '--version' || name === '-v') output.log(version())
    else if (command) return await command(args, output)
    else throw new Error(`${name === undefined ? 'Which command?' : 'There is no such command.'}\n\n${HELP}`)
    return 0
  } catch (error) {
    output.error(messagesOf(error))
    return FAILED
  }
}

function version(): string {
  return createRequire(import.meta.url)('drizzle-ratelimit/package.json').version
}
