/** For what happens soon, however busy the machine is. */
export const PATIENTLY = { timeout: 30_000, interval: 2 } as const
