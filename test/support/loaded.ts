import { readdirSync } from 'node:fs'

// A call that is the first to need a file loads it, which takes longer than tests with timers of their own
// wait. So all files that a call may need are loaded here. `cli/` would run its command.
const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
for (const file of files.filter((name) => /^(?!cli|http).*\.ts$/.test(name))) {
  await import(/* @vite-ignore */ `${process.cwd()}/src/${file}`)
}
