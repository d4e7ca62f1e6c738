import { execFile } from 'node:child_process'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { inject } from 'vitest'

/** Runs a program in the folder where the package is installed. Gives what it printed, even if it failed. */
export async function run(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<string> {
  const options = { cwd: inject('consumer'), env: { ...process.env, NO_COLOR: '1', ...env } }
  const { stdout, stderr } = await promisify(execFile)(file, args, options).catch((error) => error)
  return stdout + stderr
}

/** Runs a script of one of the repository's dependencies. */
export function runScript(path: string, args: readonly string[], env?: NodeJS.ProcessEnv): Promise<string> {
  return run(process.execPath, [resolve('node_modules', path), ...args], env)
}
