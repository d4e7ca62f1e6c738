// An Express app with limits for logins, on a Postgres inside the process: npm run example:express
import type { AddressInfo } from 'node:net'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { rateLimit } from 'drizzle-ratelimit/express'
import { clientKey } from 'drizzle-ratelimit/http'
import { lockout } from 'drizzle-ratelimit/lockout'
import express from 'express'

const client = await PGlite.create()
await client.exec(tableSql().join(';'))
const db = drizzle({ client })

// One address may try many accounts, so it has a limit of its own. Only failures count towards both.
const perAddress = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(8, '1h'), prefix: 'login-address' })
const perAccount = new Ratelimit({
  db,
  limiter: lockout(3, '15m', { block: '1m', factor: 2 }), // then for two minutes, four, ...
  prefix: 'login-account',
  hashKeys: true, // the table has no mail addresses
})

const app = express()
app.use(express.json())
app.post(
  '/login',
  (req, res, next) => {
    const { email, password } = req.body ?? {}
    if (typeof email === 'string' && email && typeof password === 'string') next()
    else res.status(400).json({ error: 'email and password are needed' })
  },
  rateLimit({
    limits: [
      { ratelimit: perAddress, key: (req) => clientKey(req, { trustedHops: 0 }) },
      { ratelimit: perAccount, key: (req) => req.body.email.trim().toLowerCase() },
    ],
    count: 'failures',
  }),
  (req, res) => {
    if (req.body.password === 'correct horse') res.json({ welcome: req.body.email })
    else res.status(401).json({ error: 'wrong email or password' })
  },
)

const server = app.listen(Number(process.env['PORT'] ?? 3000), '127.0.0.1', () => {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const login = (email: string, password: string) =>
    `curl -i ${url}/login -H 'content-type: application/json' -d '{"email":"${email}","password":"${password}"}'`
  console.log(`Listening on ${url}. Try these, several times:
  ${login('ada@example.com', 'guess')}
  ${login('ada@example.com', 'correct horse')}
  ${login('grace@example.com', 'guess')}`)
})

process.once('SIGTERM', () => server.close(() => client.close()))
