export function keysNamed(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name} ${i}`)
}
