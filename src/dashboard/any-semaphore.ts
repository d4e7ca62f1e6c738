/** A `Semaphore`, from `drizzle-ratelimit/semaphore`. */
export interface AnySemaphore {
  /** Its namespace. */
  readonly prefix: string
  /** Leases a slot. */
  acquire(key: string): Promise<{ readonly success: boolean }>
  /** Who holds a slot. */
  holders(key: string): Promise<readonly { readonly slot: number }[]>
}
