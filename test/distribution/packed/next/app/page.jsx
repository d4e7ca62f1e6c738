import { byHeader, signIn, subscribe } from './actions.js'

export default function Page() {
  return Object.entries({ subscribe, signIn, byHeader }).map(([name, action]) => (
    <form key={name} id={name} action={action} />
  ))
}
