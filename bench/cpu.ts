import type { ServerCpu } from './server/server-cpu.ts'

/** Microseconds of CPU that a check took; the server's only where its processes can be seen. */
export interface CpuPerCheck {
  readonly serverCpuUs?: number
  readonly nodeCpuUs?: number
}

/** Counts from now on; what it returns says what each of the checks took since. */
export function countCpu(serverCpu?: ServerCpu): (checks: number) => CpuPerCheck {
  // The server's first and last: to read it takes Node a while.
  const serverBefore = serverCpu?.()
  const nodeBefore = process.cpuUsage()
  return (checks) => {
    const { user, system } = process.cpuUsage(nodeBefore)
    const nodeCpuUs = (user + system) / checks
    if (!serverCpu || serverBefore === undefined) return { nodeCpuUs }
    return { nodeCpuUs, serverCpuUs: (serverCpu() - serverBefore) / checks }
  }
}
