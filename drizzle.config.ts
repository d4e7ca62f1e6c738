import { type Config, defineConfig } from 'drizzle-kit'

const config: Config = defineConfig({
  dialect: 'postgresql',
  schema: './schema/index.ts',
  out: './drizzle',
})

export default config
