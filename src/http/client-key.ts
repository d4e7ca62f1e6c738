import ipaddr from 'ipaddr.js'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { warnOnce } from '../kernel/base/warn.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { upTo } from '../kernel/options/checks.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { headerOf, type RequestHeaders } from './request-headers.ts'

/** The parts of a request that `clientKey` needs. Requests of Node's servers and Fetch requests have them. */
export interface AddressedRequest {
  /** Headers of Fetch or of Node. */
  readonly headers: RequestHeaders
  /** The connection, for requests of Node. */
  readonly socket?: { readonly remoteAddress?: string | undefined } | null
}

/** Options of `clientKey`. */
export interface ClientKeyOptions {
  /**
   * How many proxies are between the client and this server. Each must add the address that it sees to
   * `X-Forwarded-For`, and clients must not be able to bypass them. `0` means that there is no proxy. Default:
   * the header is ignored, with one warning in each process.
   */
  readonly trustedHops?: number
  /**
   * How many leading bits of an IPv6 address identify a client, between 1 and 128. One client usually has a
   * whole subnet. Default: `64`.
   */
  readonly ipv6Subnet?: number
  /** The address of the connection, because Fetch requests do not have it. Default: the socket's. */
  readonly address?: string | undefined
}

const CLIENT_NAMES: NamesOf<ClientKeyOptions> = { trustedHops: true, ipv6Subnet: upTo(128), address: true }

/**
 * The client's address as a key, such as `192.0.2.1` or `2001:db8::/64`.
 *
 * An IPv4 address in IPv6 form counts as IPv4, also with NAT64. If an entry of the header is not an address,
 * the next one towards this server is used, so that clients cannot choose their keys with invalid entries.
 *
 * @throws RatelimitError `INVALID_KEY` if the connection has no address either, so that such requests never
 * share a key; `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { createServer } from 'node:http'
 * import { clientKey } from 'drizzle-ratelimit/http'
 * import { api } from './app.ts'
 *
 * createServer((request, response) => {
 *   const answered = async () => {
 *     const { success } = await api.limit(clientKey(request, { trustedHops: 1 })) // behind one load balancer
 *     response.writeHead(success ? 200 : 429).end()
 *   }
 *   answered().catch(() => response.destroy()) // Node catches nothing: an outage would end the process
 * })
 * ```
 */
export function clientKey(request: AddressedRequest, options: ClientKeyOptions = {}): string {
  checkOptions(options, CLIENT_NAMES)
  const { trustedHops = 0, ipv6Subnet = 64, address = request.socket?.remoteAddress } = options
  checkOption(
    Number.isSafeInteger(trustedHops) && trustedHops >= 0,
    'trustedHops must be a whole number of 0 or more.',
  )
  if (options.trustedHops === undefined) warnOfProxies(request)
  const forwarded = trustedHops > 0 ? forwardedFor(request) : []
  // The nearest proxy has written the last entry.
  const trusted = [...forwarded, address].slice(-trustedHops - 1)
  for (const candidate of trusted) {
    const parsed = parse(candidate)
    if (parsed) return keyOf(parsed, ipv6Subnet)
  }
  throw new RatelimitError('INVALID_KEY', 'The request has no address.')
}

/** Without `trustedHops`, all clients behind a proxy share one key. */
function warnOfProxies(request: AddressedRequest): void {
  const header = ['X-Forwarded-For', 'Forwarded'].find((name) =>
    headerOf(request.headers, name.toLowerCase()),
  )
  if (header === undefined) return
  warnOnce(
    'FORWARDED_IGNORED',
    `A request has the header ${header}, but clientKey has no trustedHops. If a proxy sent it, all clients ` +
      'share one key. Set trustedHops to the number of proxies that add to X-Forwarded-For, or to 0 if there ' +
      'is none. See docs/http.md, "Behind proxies".',
  )
}

function forwardedFor(request: AddressedRequest): string[] {
  return (headerOf(request.headers, 'x-forwarded-for') ?? []).toString().split(',')
}

type Address = ipaddr.IPv4 | ipaddr.IPv6

function parse(written: string | undefined): Address | undefined {
  const text = withoutPort(written?.trim() ?? '')
  // Programs differ in how they read other forms of IPv4, such as octal numbers.
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) return ipaddr.IPv4.parse(text)
  // The zone has a meaning only on one machine. Interfaces of VLANs have a dot in it, such as `%eth0.100`.
  const [address = ''] = text.split('%', 1)
  return ipaddr.IPv6.isValid(address) ? unpacked(ipaddr.IPv6.parse(address)) : undefined
}

/**
 * IPv4 in IPv6 form: from sockets that accept both, and from NAT64. As IPv6, all such clients share one /64.
 */
const PACKED = ['::ffff:0:0/96', '64:ff9b::/96'].map((range) => ipaddr.IPv6.parseCIDR(range))

function unpacked(address: ipaddr.IPv6): Address {
  const isIPv4 = PACKED.some((range) => address.match(range))
  return isIPv4 ? ipaddr.fromByteArray(address.toByteArray().slice(12)) : address
}

/** Some proxies write `192.0.2.1:443` and `[2001:db8::1]:443`. */
function withoutPort(text: string): string {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d+)?$/.exec(text) ?? []
  return bracketed ?? plain ?? text
}

function keyOf(address: Address, ipv6Subnet: number): string {
  if (address.kind() === 'ipv4' || ipv6Subnet === 128) return address.toString()
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/${ipv6Subnet}`)}/${ipv6Subnet}`
}
