/** What kind of value came, for messages. They never have the value, because keys may be people's addresses. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (value === '') return 'an empty text'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'number') return kindOfNumber(value)
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

function kindOfNumber(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : 'infinite'
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) return 'a larger number'
  if (!Number.isInteger(value)) return 'a fraction'
  return value < 0 ? 'a negative number' : 'a number'
}
