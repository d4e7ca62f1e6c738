/** Something that a test waits for, or that it keeps waiting. */
export interface Gate {
  readonly opened: Promise<void>
  open(): void
}

/** A gate that is closed. */
export function gate(): Gate {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}
