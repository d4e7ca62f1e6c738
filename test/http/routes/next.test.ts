import { limitedRoute } from 'drizzle-ratelimit/next'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { perHour } from './serve.ts'

const database = useDatabase()

function answerTo(response: Response): Promise<Response> {
  const limited = limitedRoute<Request>(
    { ratelimit: perHour(database.db, 5), key: () => 'all', headers: 'legacy' },
    () => response,
  )
  return limited(new Request('http://localhost/'), {})
}

// On Bun a response that is made of another one's body loses the content type.
test('the response of a route is sent itself, and not a copy', async () => {
  const made = new Response('hello')
  const response = await answerTo(made)
  expect(response).toBe(made)
  expect(response.headers.get('x-ratelimit-limit')).toBe('5')
})

test('a response that cannot be changed has the headers too', async () => {
  const response = await answerTo(Response.redirect('http://localhost/elsewhere'))
  expect([response.status, response.headers.get('x-ratelimit-limit')]).toEqual([302, '5'])
})
