import type { ServerCpu } from './server/server-cpu.ts'

/** Microseconds of CPU that a check took. The server's are missing if its processes cannot be seen. */
export interface CpuPerCheck {
  readonly serverCpuUs?: number
  readonly nodeCpuUs?: number
}

/** Counts from now on. It returns a function that says what each of the checks took since. */
export function countCpu(serverCpu?: ServerCpu): (checks: number) => CpuPerCheck {
  // The server's CPU is read first and last, because Node takes a while to read it.
  const serverBefore = serverCpu?.()
  const nodeBefore = process.cpuUsage()
  return (checks) => {
    const { user, system } = process.cpuUsage(nodeBefore)
    const nodeCpuUs = (user + system) / checks
    if (!serverCpu || serverBefore === undefined) return { nodeCpuUs }
    return { nodeCpuUs, serverCpuUs: (serverCpu() - serverBefore) / checks }
  }
}
