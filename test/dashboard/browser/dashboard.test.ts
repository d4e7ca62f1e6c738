import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

// Opens the page of examples/dashboard.ts in Chromium, where it is installed. `SCREENSHOT=docs/dashboard.png`
// makes the picture of the documentation.

const PROGRAM = [process.env['CHROMIUM'] ?? '', '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  existsSync,
)

describe.skipIf(PROGRAM === undefined)('in Chromium', () => {
  let browser: Browser
  let url: string
  const ends: (() => unknown)[] = []

  beforeAll(async () => {
    const app = spawn('node_modules/.bin/tsx', ['examples/dashboard.ts'], {
      env: { ...process.env, PORT: '0' },
    })
    ends.push(() => app.kill())
    url = await new Promise<string>((resolve, reject) => {
      app.stdout.on('data', (text) => resolve(/http:[/.:\w]+/.exec(String(text))?.[0] ?? ''))
      app.once('exit', (code) => reject(new Error(`The example has ended with ${code}`)))
    })
    browser = await chromium.launch({ executablePath: PROGRAM ?? '', args: ['--no-sandbox'] })
    ends.unshift(() => browser.close())
  })
  afterAll(async () => {
    for (const end of ends) await end()
  })

  /** A page, and what its console said: each violation of the policy is an error there. */
  async function open(path: string, options: BrowserContextOptions = {}) {
    const context = await browser.newContext({ viewport: { width: 1000, height: 760 }, ...options })
    const page = await context.newPage()
    const errors: string[] = []
    page.on('console', (message) => void (message.type() === 'error' && errors.push(message.text())))
    page.on('pageerror', (error) => void errors.push(String(error)))
    await page.goto(url + path)
    return { page, errors }
  }

  const columns = (page: Page, key: string) =>
    page
      .locator('tr', { has: page.getByRole('button', { name: key }) })
      .first()
      .locator('td')
      .allInnerTexts()

  test('it looks as it should: the bars have heights and colours, and nothing breaks the policy', async () => {
    const { page, errors } = await open('/?limit=api', { colorScheme: 'light' })
    expect(await page.title()).toBe('api')
    const bars = await page.locator('svg.chart rect').all()
    expect(bars).toHaveLength(24)
    const heights = await Promise.all(bars.map(async (bar) => (await bar.boundingBox())?.height ?? 0))
    expect(Math.max(...heights)).toBeGreaterThan(50)
    expect(Math.min(...heights)).toBeLessThan(Math.max(...heights))
    expect(await bars[0]?.evaluate((bar) => getComputedStyle(bar).fill)).toBe('rgb(194, 65, 12)')
    const box = await page.locator('table').first().boundingBox()
    expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(1000)
    expect(errors).toEqual([])
    const path = process.env['SCREENSHOT']
    if (path) await page.screenshot({ path, fullPage: true })
  })

  test('it fits a phone', async () => {
    const { page } = await open('/?limit=api', { viewport: { width: 375, height: 700 } })
    expect(
      await page.locator('svg.chart').evaluate((chart) => chart.getBoundingClientRect().width),
    ).toBeLessThan(375)
  })

  test('it works without scripts: from the list to a key, and its reset', async () => {
    const { page, errors } = await open('/', { javaScriptEnabled: false })
    await page.getByRole('link', { name: 'api' }).click()
    const [, , used = '0'] = await columns(page, 'user:mallory')
    expect(Number(used)).toBeGreaterThan(0)
    await page.getByRole('button', { name: 'user:mallory' }).first().click()
    expect(page.url()).toBe(`${url}/?limit=api`)
    expect(await page.locator('#key').innerText()).toBe('user:mallory')
    await page.getByRole('button', { name: 'Reset' }).click()
    expect(page.url()).toBe(`${url}/?limit=api&done=reset`)
    expect(await page.getByRole('status').innerText()).toBe('The key has its whole limit again.')
    await page.getByLabel('Find a key').fill('user:mallory')
    await page.getByRole('button', { name: 'Look' }).click()
    expect(await page.locator('tbody td').first().innerText()).toBe('0')
    expect(errors).toEqual([])
  })

  test('credits are granted once, also if the page is loaded again', async () => {
    const { page } = await open('/?limit=credits', { javaScriptEnabled: false })
    await page.getByRole('button', { name: 'org:1' }).click()
    await page.getByLabel('Credits').fill('250')
    await page.getByRole('button', { name: 'Grant' }).click()
    await page.reload()
    expect(await columns(page, 'org:1')).toEqual(expect.arrayContaining(['1,130', '1,250']))
  })

  test('another site cannot post its forms', async () => {
    const { page } = await open('/?limit=api')
    const token = await page.locator('input[name=token]').first().inputValue()
    const other = await browser.newPage()
    await other.setContent(`<form method="post" action="${url}/?limit=api"><input name="token" value="${token}">
      <input name="stored" value="user:ada"><button name="do" value="reset">Win</button></form>`)
    await other.getByRole('button').click()
    expect(await other.getByRole('alert').innerText()).toContain('not of this page')
  })
})
