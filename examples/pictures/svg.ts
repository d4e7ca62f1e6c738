import { type EChartsOption, init } from 'echarts'

// What the pictures have in common. The colours are readable on white and on black.

export const INK = '#768089'
export const ALLOWED = '#2f9e6e'
export const DENIED = '#c8553d'
export const BOUGHT = '#c19a3f'

export const WIDTH = 960

/** Three ticks, for legends of calls. */
export const TICKS = 'path://M3 0h2v10h-2z M7 0h2v10h-2z M11 0h2v10h-2z'
/** Two dashes, for legends of limits. */
export const DASHES = 'path://M0 4h7v2h-7z M9 4h7v2h-7z'

export function svgOf(option: EChartsOption, height: number): string {
  const image = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height })
  image.setOption({
    ...{ animation: false, textStyle: { fontFamily: 'system-ui, sans-serif', color: INK } },
    ...option,
  })
  const svg = image.renderToSVGString()
  // Without this, its timer would keep the process alive.
  image.dispose()
  return `${svg}\n`
}
