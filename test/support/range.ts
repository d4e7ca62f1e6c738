/** The numbers from 0 on. */
export function range(length: number): readonly number[] {
  return Array.from({ length }, (_, place) => place)
}
