import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { type Browser, type BrowserContextOptions, chromium, type Locator, type Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

// Opens the page of examples/dashboard.ts in Chromium, where it is installed. `SCREENSHOT=docs/dashboard.png`
// makes the pictures of the documentation: this one, and docs/dashboard-limit.png.

const PROGRAM = [process.env['CHROMIUM'] ?? '', '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  existsSync,
)

/** What a person reads needs this contrast. https://www.w3.org/TR/WCAG22/#contrast-minimum */
const CONTRAST = 4.5

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
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
    const page = await context.newPage()
    const errors: string[] = []
    page.on('console', (message) => void (message.type() === 'error' && errors.push(message.text())))
    page.on('pageerror', (error) => void errors.push(String(error)))
    await page.goto(url + path)
    return { page, errors }
  }

  /** A row by what it is about. */
  const row = (page: Page, name: string) =>
    page.locator('tbody tr', { has: page.getByRole('link', { name, exact: true }) }).first()

  /** Presses what leads to another page, and waits for that page: a click alone may end on the old one. */
  async function follow(what: Locator) {
    const loaded = what.page().waitForEvent('load')
    await what.click()
    await loaded
  }

  /** The pages that a person sees: all limits, a limit, a key, and the question before a change. */
  async function eachPage(page: Page, look: (name: string) => Promise<void>) {
    await look('limits')
    await follow(page.getByRole('link', { name: 'tokens', exact: true }))
    await look('a limit with reservations')
    await page.goto(`${url}/?limit=api`)
    await look('a limit')
    await follow(page.getByRole('link', { name: 'user:mallory' }).first())
    await look('a key')
    await follow(page.getByRole('button', { name: 'Reset' }).first())
    await look('a question')
  }

  // What fits depends on the width, and what can be read on the scheme. Rows are cards up to 960 pixels.
  test.each([
    [1280, 'light'],
    [961, 'dark'],
    [390, 'light'],
    [360, 'dark'],
  ] as const)('at %i pixels all of it can be read, %s', async (width, colorScheme) => {
    const { page, errors } = await open('/', { viewport: { width, height: 800 }, colorScheme })
    await eachPage(page, async (name) => {
      const { wider, broken, faint } = await page.evaluate(whatIsSeen)
      const unreadable = faint.filter(({ contrast }) => contrast < CONTRAST)
      expect({ name, wider, broken, unreadable }).toEqual({ name, wider: 0, broken: [], unreadable: [] })
      const withLongNames = await page.evaluate(widthWithLongNames)
      expect({ name, wider: withLongNames }).toEqual({ name, wider: 0 })
    })
    expect(errors).toEqual([])
  })

  test('headings and landmarks are in order, and each field has a name', async () => {
    const { page } = await open('/')
    await eachPage(page, async () => {
      const levels = await page
        .locator('h1, h2, h3')
        .evaluateAll((all) => all.map(({ tagName }) => Number(tagName[1])))
      expect(levels.filter((level) => level === 1)).toEqual([1])
      levels.forEach((level, place) => void expect(level).toBeLessThanOrEqual((levels[place - 1] ?? 0) + 1))
      expect(await page.getByRole('main').count()).toBe(1)
      for (const field of await page.locator('input:not([type=hidden]), select').all()) {
        expect(await field.evaluate((each) => (each as HTMLInputElement).labels?.[0]?.textContent)).toMatch(
          /\w/,
        )
      }
    })
  })

  test('the first tab goes to the content, and what has the focus can be seen', async () => {
    const { page } = await open('/')
    await page.keyboard.press('Tab')
    const skip = page.getByRole('link', { name: 'To the content' })
    expect(await skip.evaluate((link) => link === document.activeElement)).toBe(true)
    expect((await skip.boundingBox())?.x).toBeGreaterThanOrEqual(0)
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    const outline = await page.evaluate(
      () => getComputedStyle(document.activeElement as Element).outlineWidth,
    )
    expect(outline).toBe('3px')
  })

  test('the limit with most trouble comes first, and its bars have the scale of the others', async () => {
    const { page } = await open('/')
    expect(await page.locator('tbody th a').first().innerText()).toBe('api')
    const tallest = async (name: string) => {
      const bars = await row(page, name).locator('svg rect:not(.hit)').all()
      return Math.max(...(await Promise.all(bars.map(async (bar) => (await bar.boundingBox())?.height ?? 0))))
    }
    expect(await tallest('api')).toBeGreaterThan(25)
    expect(await tallest('exports')).toBeLessThan(10)
    const path = process.env['SCREENSHOT']
    if (!path) return
    await page.screenshot({ path, fullPage: true })
    await page.goto(`${url}/?limit=api`)
    await page.screenshot({ path: path.replace('.png', '-limit.png'), fullPage: true })
  })

  test('it works without scripts: from the limits to a key, its reset, and what has changed', async () => {
    const { page, errors } = await open('/', { javaScriptEnabled: false })
    await follow(page.getByRole('link', { name: 'api', exact: true }))
    await page.getByLabel('A key, or a part of it').fill('mall')
    await follow(page.getByRole('button', { name: 'Search' }))
    await follow(page.getByRole('link', { name: 'user:mallory' }).first())
    expect(page.url()).not.toContain('mallory')
    expect(await page.locator('h1').innerText()).toBe('user:mallory')
    await follow(page.getByRole('button', { name: 'Reset' }).first())
    await follow(page.getByRole('button', { name: 'Yes, reset' }))
    expect(await page.getByRole('status').innerText()).toBe(
      'api, user:mallory: It has its whole limit again.',
    )
    expect(errors).toEqual([])
  })

  test('credits are granted once, also if the page is loaded again', async () => {
    const { page } = await open('/?limit=credits', { javaScriptEnabled: false })
    await follow(page.getByRole('link', { name: 'org:1' }).first())
    await page.getByRole('textbox', { name: 'Credits' }).first().fill('250')
    await follow(page.getByRole('button', { name: 'Grant' }))
    await follow(page.getByRole('button', { name: 'Yes, grant' }))
    await page.reload()
    expect(await page.getByRole('status').innerText()).toContain('It has 1,090.')
    expect(await row(page, 'credits').locator('td').allInnerTexts()).toEqual(
      expect.arrayContaining(['1,090', '1,250']),
    )
  })

  test('another site cannot post its forms', async () => {
    const { page } = await open('/?limit=api')
    const token = await page.locator('input[name=token]').first().inputValue()
    await follow(page.getByRole('link', { name: 'user:ada' }).first())
    const id = new URL(page.url()).searchParams.get('id')
    const other = await browser.newPage()
    await other.setContent(`<form method="post" action="${url}/?limit=api"><input name="token" value="${token}">
      <input name="id" value="${id}"><input name="sure" value="yes"><button name="do" value="reset">Win</button></form>`)
    await follow(other.getByRole('button'))
    expect(await other.getByRole('alert').innerText()).toContain('not of this page')
  })
})

/** What a person would see: how much wider the page is than the screen, words that break, and contrasts. */
function whatIsSeen() {
  const channels = (color: string) => (color.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number)
  const light = (color: string) => {
    const [r = 0, g = 0, b = 0] = channels(color).map((each) => {
      const share = each / 255
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const ground = (element: Element | null): string => {
    if (!element) return 'rgb(255, 255, 255)'
    const { backgroundColor } = getComputedStyle(element)
    return backgroundColor === 'rgba(0, 0, 0, 0)' ? ground(element.parentElement) : backgroundColor
  }
  const texts = [...document.querySelectorAll('main *, header *, footer *')].filter(
    (each) =>
      [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent?.trim()) &&
      each.getClientRects().length > 0,
  )
  const faint = texts
    .filter((each) => !each.closest('svg'))
    .map((each) => {
      const [one = 0, other = 0] = [light(getComputedStyle(each).color), light(ground(each))].toSorted(
        (a, b) => b - a,
      )
      return { text: each.textContent?.trim().slice(0, 40), contrast: (one + 0.05) / (other + 0.05) }
    })
  // A short key has one line.
  const broken = [...document.querySelectorAll('.key')]
    .filter((each) => (each.textContent?.length ?? 0) < 20 && each.getClientRects().length > 1)
    .map((each) => each.textContent)
  return { wider: document.documentElement.scrollWidth - window.innerWidth, faint, broken }
}

/** How much wider the page is than the screen if limits, keys and what they hold have long names. */
function widthWithLongNames() {
  const named = 'h1, h2, nav a, tbody th a, .key, code, td.text small, tbody th small'
  const added = [...document.querySelectorAll(named)].map((each) => {
    const text = document.createTextNode('x'.repeat(300))
    each.append(text)
    return text
  })
  const wider = document.documentElement.scrollWidth - window.innerWidth
  for (const text of added) text.remove()
  return wider
}
