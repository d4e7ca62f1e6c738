import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, unprivileged } from './cluster.ts'
import { tell } from './happened.ts'

const PROGRAM = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer', '/usr/local/bin/pgbouncer'].find(existsSync)

export const hasPgBouncer: boolean = PROGRAM !== undefined

/** A PgBouncer in transaction mode in front of a server. */
export class PgBouncer {
  readonly #process: ChildProcess
  readonly #home: string
  readonly #port: number

  private constructor(child: ChildProcess, home: string, port: number) {
    this.#process = child
    this.#home = home
    this.#port = port
  }

  /** @param settings Lines for the configuration, such as `default_pool_size = 2`. */
  static async start(url: string, settings: readonly string[] = []): Promise<PgBouncer> {
    if (PROGRAM === undefined) throw new Error('PgBouncer is not installed.')
    const { hostname, port: serverPort, username, password } = new URL(url)
    const home = await mkdtemp(join(tmpdir(), 'pgbouncer-'))
    const port = await freePort()
    const file = join(home, 'pgbouncer.ini')
    await writeFile(
      file,
      [
        ...['[databases]', `* = host=${hostname} port=${serverPort} user=${username} password=${password}`],
        ...['[pgbouncer]', 'listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir ='],
        ...['auth_type = any', 'pool_mode = transaction', 'ignore_startup_parameters = extra_float_digits'],
        ...settings,
      ].join('\n'),
    )
    // PgBouncer does not run as root.
    const user = await unprivileged()
    if (user.uid !== undefined && user.gid !== undefined) {
      for (const path of [home, file]) await chown(path, user.uid, user.gid)
    }
    await chmod(home, 0o700)
    const child = spawn(PROGRAM, ['-q', file], { ...user, stdio: 'ignore' })
    const bouncer = new PgBouncer(child, home, port)
    while (!(await answers(port))) {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended with ${child.exitCode}.`)
    }
    tell('poolers', 'started')
    return bouncer
  }

  /** The server's URL by way of PgBouncer. */
  through(url: string): string {
    const other = new URL(url)
    other.port = String(this.#port)
    return other.href
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode === null) {
      this.#process.kill('SIGQUIT')
      await once(this.#process, 'exit')
    }
    await rm(this.#home, { recursive: true, force: true })
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => setTimeout(resolve, 20, false))
  })
}
