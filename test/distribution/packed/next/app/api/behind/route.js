export const GET = () => Response.json({ reached: true })
