export interface Waiter<Batch> {
  /** The unique names of its rows. */
  readonly rows: readonly string[]
  /** In how many of its rows' queues it is the first. */
  first: number
  batch: Batch | undefined
}

/** Those that wait for a row, in order, and the batch that is under way with the row. */
interface RowQueue<One, Batch> {
  readonly waiting: One[]
  batch: Batch | undefined
  /**
   * Those that wait for the row, if the batch waits for it too. They are in no other queue, because they would
   * keep others waiting there.
   */
  parked: One[] | undefined
}

/** A queue for each row. A waiter with several rows goes on when all of them are free. */
export class RowQueues<One extends Waiter<Batch>, Batch> {
  readonly #queues = new Map<string, RowQueue<One, Batch>>()

  longest(rows: readonly string[]): number {
    return rows.reduce((most, row) => {
      const { waiting, parked = [] } = this.#queues.get(row) ?? { waiting: [] }
      return Math.max(most, waiting.length + parked.length)
    }, 0)
  }

  enter(one: One): void {
    one.first = 0
    const parked = this.#parkedFor(one)
    if (parked) {
      parked.push(one)
      return
    }
    for (const row of one.rows) {
      if (this.#queueOf(row).waiting.push(one) === 1) one.first++
    }
  }

  /** Parks those that wait for the row, whose batch waits for others. Returns the rows that they leave. */
  park(row: string): readonly string[] {
    const queue = this.#queueOf(row)
    queue.parked ??= []
    const leaving = [...queue.waiting]
    for (const one of leaving) this.dequeue(one)
    for (const one of leaving) this.enter(one)
    return leaving.flatMap(({ rows }) => rows)
  }

  #parkedFor({ rows }: One): One[] | undefined {
    for (const row of rows) {
      const parked = this.#queues.get(row)?.parked
      if (parked) return parked
    }
    return undefined
  }

  /** Puts it back, before all others of its rows. */
  putBack(one: One): void {
    one.batch = undefined
    one.first = one.rows.length
    for (const row of one.rows) {
      const { waiting } = this.#queueOf(row)
      const [first] = waiting
      if (first) first.first--
      waiting.unshift(one)
    }
  }

  /** Whether it is the first for each of its rows, and each row is free or under way with the batch. */
  isFirst({ first, rows }: One, batch: Batch | undefined): boolean {
    if (first < rows.length) return false
    return rows.every((row) => {
      const under = this.#queueOf(row).batch
      return under === undefined || under === batch
    })
  }

  /** Moves it from the queues of its rows into the batch. Returns those that are next. */
  start(one: One, batch: Batch): readonly One[] {
    one.batch = batch
    for (const row of one.rows) this.#queueOf(row).batch = batch
    return this.dequeue(one)
  }

  /** Removes it from the queues of its rows. Returns those that are now the first of one of them. */
  dequeue(one: One): readonly One[] {
    const found: One[] = []
    for (const row of one.rows) {
      const { waiting, parked } = this.#queueOf(row)
      if (parked?.includes(one)) {
        parked.splice(parked.indexOf(one), 1)
        return found
      }
      const place = waiting.indexOf(one)
      // It may be parked for another row.
      if (place < 0) continue
      waiting.splice(place, 1)
      const [next] = waiting
      if (place > 0 || !next) continue
      next.first++
      if (!found.includes(next)) found.push(next)
    }
    return found
  }

  end(rows: readonly string[], batch: Batch): void {
    for (const row of rows) {
      const queue = this.#queues.get(row)
      if (queue?.batch !== batch) continue
      const { parked = [] } = queue
      queue.batch = queue.parked = undefined
      for (const one of parked) this.enter(one)
    }
  }

  /** The first waiter for the row, if the row is free. */
  next(row: string): One | undefined {
    const queue = this.#queues.get(row)
    if (!queue || queue.batch) return undefined
    const [next] = queue.waiting
    if (!next) this.#queues.delete(row)
    return next
  }

  #queueOf(row: string): RowQueue<One, Batch> {
    const known = this.#queues.get(row)
    if (known) return known
    const queue: RowQueue<One, Batch> = { waiting: [], batch: undefined, parked: undefined }
    this.#queues.set(row, queue)
    return queue
  }
}
