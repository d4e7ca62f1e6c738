import { readdirSync, readFileSync } from 'node:fs'
import pg from 'pg'

/** The microseconds of CPU that all processes of the server have taken since it started. */
export type ServerCpu = () => number

/** Linux reports user and system time in hundredths of a second, whatever the rate of its clock is. */
const TICK_US = 10_000

/**
 * Undefined if the server's processes cannot be seen: on another machine, in a container, or without /proc.
 */
export async function serverCpuOf(serverUrl: string): Promise<ServerCpu | undefined> {
  const client = new pg.Client({ connectionString: serverUrl })
  await client.connect()
  try {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    const backend = rows[0]?.pid
    // A server in a container reports a process id that means another process outside.
    if (backend === undefined || !isPostgres(backend)) return undefined
    const postmaster = statOf(backend)?.parent
    return postmaster === undefined ? undefined : () => takenBy(postmaster)
  } finally {
    await client.end()
  }
}

/** The time of a child that ends is not lost, because its parent then has it. */
function takenBy(postmaster: number): number {
  let us = 0
  for (const name of readdirSync('/proc')) {
    const pid = Number(name)
    const stat = Number.isInteger(pid) ? statOf(pid) : undefined
    if (!stat || (pid !== postmaster && stat.parent !== postmaster)) continue
    us += exactUs(pid) ?? stat.ownUs
    if (pid === postmaster) us += stat.endedChildrenUs
  }
  return us
}

interface Stat {
  readonly parent: number
  readonly ownUs: number
  readonly endedChildrenUs: number
}

/** https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
function statOf(pid: number): Stat | undefined {
  const stat = contentOf(`/proc/${pid}/stat`)
  // The name before it stands in brackets and may contain spaces and brackets.
  const [, parent = 0, ...others] =
    stat
      ?.slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number) ?? []
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = others.slice(9)
  if (!stat) return undefined
  return { parent, ownUs: (user + system) * TICK_US, endedChildrenUs: (endedUser + endedSystem) * TICK_US }
}

/**
 * The same time in nanoseconds, if the kernel reports it. Each of many connections may take less than a tick.
 */
function exactUs(pid: number): number | undefined {
  const nanoseconds = Number(contentOf(`/proc/${pid}/schedstat`)?.split(' ')[0])
  return nanoseconds > 0 ? nanoseconds / 1000 : undefined
}

function isPostgres(pid: number): boolean {
  return contentOf(`/proc/${pid}/cmdline`)?.startsWith('postgres:') ?? false
}

/** Undefined if the process has ended. */
function contentOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
