import { limitedRoute } from 'drizzle-ratelimit/next'
import { redirect } from 'next/navigation.js'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { perHour } from './serve.ts'

const database = useDatabase()

test('a route handler that redirects has not failed', async () => {
  const ratelimit = perHour(database.db, 3)
  const login = limitedRoute({ ratelimit, key: () => 'ada', count: 'failures' }, (request) => {
    if (request.url.endsWith('right')) redirect('/home')
    throw new Error('wrong password')
  })
  const ask = (path: string) => login(new Request(`http://localhost/${path}`) as never, {})
  await expect(ask('right')).rejects.toMatchObject({ digest: expect.stringContaining('/home') })
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 0 })
  await expect(ask('wrong')).rejects.toThrow('wrong password')
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 1 })
})

test('with resetOnSuccess a success forgets the failures before it', async () => {
  const ratelimit = perHour(database.db, 3)
  const options = { ratelimit, key: () => 'ada', count: 'failures', resetOnSuccess: true } as const
  const login = limitedRoute<Request>(options, (request) =>
    Response.json({}, { status: request.url.endsWith('right') ? 200 : 401 }),
  )
  const ask = (path: string) => login(new Request(`http://localhost/${path}`), {})
  await ask('wrong')
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 1 })
  await ask('right')
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 0 })
})
