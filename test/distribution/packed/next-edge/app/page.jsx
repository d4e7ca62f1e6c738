export default function Page() {
  return 'hello'
}
