'use server'
import { limitedAction } from 'drizzle-ratelimit/next'
import { redirect } from 'next/navigation'
import { key, perHour } from '../limits.js'

const mail = ({ args: [address] }) => address
const onDenied = ({ limit, retryAfter }) => ({ denied: limit, retryAfter })

export const subscribe = limitedAction(
  { ratelimit: perHour('subscribe', 7), key: mail, onDenied },
  async (address, list) => ({ [list]: address }),
)

export const signIn = limitedAction(
  { ratelimit: perHour('sign-in', 1), key: mail, onDenied, count: 'failures' },
  async (_address, password) => {
    if (password === 'right') redirect('/welcome')
    throw new Error('The password is wrong.')
  },
)

export const byHeader = limitedAction(
  { ratelimit: perHour('by-header', 1), key, onDenied },
  async () => 'done',
)
