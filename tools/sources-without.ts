import { spawn } from 'node:child_process'
import { cp, mkdir, rename, symlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { SHOWN_BY, type Wing } from '../test/support/wings.ts'

const COPIED = ['src', 'schema', 'package.json', 'tsconfig.json', 'tsconfig.build.json']

const COMPILER = ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--noEmit']

/**
 * Compiles the sources in a folder, without one wing after the other. The compiler remembers them, and looks
 * again at what has changed only. Returns the wings without which they do not compile.
 */
export async function sourcesWithout(folder: string, wings: readonly Wing[]): Promise<Wing[]> {
  await Promise.all(COPIED.map((each) => cp(each, join(folder, each), { recursive: true })))
  await symlink(resolve('node_modules'), join(folder, 'node_modules'))
  await mkdir(join(folder, 'removed'))
  if (!(await compiles(folder))) throw new Error('The sources do not compile.')
  const needed: Wing[] = []
  for (const wing of wings) {
    const removed = [wing, ...(SHOWN_BY[wing] ?? [])]
    const put = await Promise.all(removed.map((each) => remove(folder, each)))
    if (!(await compiles(folder))) needed.push(wing)
    await Promise.all(put.map((back) => back()))
  }
  return needed
}

/** Moves the sources of a wing away. Returns what moves them back. */
async function remove(folder: string, wing: Wing): Promise<() => Promise<void>> {
  const moved = join(folder, 'removed', wing)
  const move = async (name: string) => {
    const home = join(folder, 'src', name)
    await rename(home, moved)
    return () => rename(moved, home)
  }
  return move(wing).catch(() => move(`${wing}.ts`))
}

function compiles(folder: string): Promise<boolean> {
  const remembered = ['--incremental', '--tsBuildInfoFile', 'remembered.json']
  const child = spawn(process.execPath, [...COMPILER, ...remembered], { cwd: folder, stdio: 'inherit' })
  return new Promise((done) => child.on('close', (code) => done(code === 0)))
}
