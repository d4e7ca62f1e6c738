import { clientKey } from 'drizzle-ratelimit/http'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { runs } from '../../support/runs.ts'
import { useWarnings } from '../../support/warnings.ts'

function from(remoteAddress: string | undefined, forwarded?: string | string[]) {
  return {
    headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
    socket: { remoteAddress },
  }
}

const PROXY = '10.0.0.1'

describe('the address', () => {
  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['64:ff9b::192.0.2.1', '192.0.2.1'],
    ['64:ff9b::c000:201%eth0', '192.0.2.1'],
    ['64:ff9b:1::c000:201', '64:ff9b:1::/64'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:1:2::', '2001:db8:1:2::/64'],
    ['::1', '::/64'],
    ['fe80::1%eth0', 'fe80::/64'],
    ['fe80::1%eth0.100', 'fe80::/64'],
    ['[fe80::1%br-lan_2.100]:443', 'fe80::/64'],
    ['fe80::1%25eth0.100', 'fe80::/64'],
    ['2001:db8:1:2::3%192.0.2.1', '2001:db8:1:2::/64'],
    ['::ffff:192.0.2.1%eth0.100', '192.0.2.1'],
  ])('%s is the key %s', (address, key) => {
    expect(clientKey(from(address))).toBe(key)
    expect(clientKey(new Request('http://localhost'), { address })).toBe(key)
  })

  test.each([
    [128, '2001:db8:1:2ff3:3:4:5:6'],
    [56, '2001:db8:1:2f00::/56'],
    [60, '2001:db8:1:2ff0::/60'],
    [1, '::/1'],
  ])('an IPv6 address is cut to the subnet: %d', (ipv6Subnet, key) => {
    expect(clientKey(from('2001:db8:1:2ff3:3:4:5:6'), { ipv6Subnet })).toBe(key)
    expect(clientKey(from('192.0.2.1'), { ipv6Subnet })).toBe('192.0.2.1')
  })

  test('a request without an address has no key', () => {
    for (const request of [
      from(undefined),
      from('nonsense'),
      from('192.0.2.1%eth0.100'),
      from('%eth0.100'),
      { headers: new Headers() },
      { headers: {}, socket: null },
    ]) {
      expect(() => clientKey(request)).toThrow(expect.objectContaining({ code: 'INVALID_KEY' }))
    }
  })

  test.each([
    { trustedHops: -1 },
    { trustedHops: 0.5 },
    { ipv6Subnet: 0 },
    { ipv6Subnet: 129 },
    { ipv6Subnet: Number.NaN },
  ])('refuses %j', (options) => {
    expect(() => clientKey(from(PROXY), options)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  })
})

describe('behind proxies', () => {
  test('no header is trusted by default', () => {
    expect(clientKey(from('192.0.2.1', '198.51.100.1'), { trustedHops: 0 })).toBe('192.0.2.1')
  })

  test.each([
    [1, '203.0.113.9, 198.51.100.1', '198.51.100.1'],
    [2, '203.0.113.9, 198.51.100.1', '203.0.113.9'],
    [2, 'forged, 203.0.113.9, 198.51.100.1', '203.0.113.9'],
    [3, '203.0.113.9, 198.51.100.1', '203.0.113.9'],
    [1, undefined, PROXY],
    [1, '', PROXY],
    [1, '203.0.113.9, unknown', PROXY],
    [2, '203.0.113.9, unknown, 198.51.100.1', '198.51.100.1'],
    [1, '198.51.100.1:4711', '198.51.100.1'],
    [1, '[2001:db8::1]:4711', '2001:db8::/64'],
    [1, '[2001:db8::1]', '2001:db8::/64'],
    [1, '2001:db8::1', '2001:db8::/64'],
    [1, '0x7f.1', PROXY],
    [1, '010.0.0.2', PROXY],
    [1, '3232235777', PROXY],
  ])('%d trusted, X-Forwarded-For: %s', (trustedHops, forwarded, key) => {
    expect(clientKey(from(PROXY, forwarded), { trustedHops })).toBe(key)
    expect(clientKey(from(PROXY, forwarded?.split(', ')), { trustedHops })).toBe(key)
    const request = new Request(
      'http://localhost',
      forwarded ? { headers: { 'x-forwarded-for': forwarded } } : {},
    )
    expect(clientKey(request, { trustedHops, address: PROXY })).toBe(key)
  })

  test('a socket without an address, such as a Unix socket, works behind a proxy', () => {
    expect(clientKey(from(undefined, '198.51.100.1'), { trustedHops: 1 })).toBe('198.51.100.1')
  })

  test('whatever a client writes, the key is the address that the proxies have seen', () => {
    const written = fc.oneof(
      fc.string(),
      fc.ipV4(),
      fc.ipV6(),
      fc.constantFrom('', ',', ',,', ' ', '\t', '%'),
    )
    fc.assert(
      fc.property(written, fc.integer({ min: 1, max: 3 }), (forged, trustedHops) => {
        const seen = ['198.51.100.7', '10.0.0.3', '10.0.0.2'].slice(0, trustedHops)
        const request = from(PROXY, [forged, ...seen].join(', '))
        expect(clientKey(request, { trustedHops })).toBe('198.51.100.7')
      }),
      runs(300),
    )
  })
})

describe('a forwarded header without trustedHops', () => {
  const warn = useWarnings()

  test.each([
    ['X-Forwarded-For', from(PROXY, '198.51.100.1')],
    ['X-Forwarded-For', from(PROXY, ['198.51.100.1'])],
    ['Forwarded', { headers: { forwarded: 'for=198.51.100.1' }, socket: { remoteAddress: PROXY } }],
  ])('causes one warning: %s', (header, request) => {
    for (const _ of 'ab') expect(clientKey(request)).toBe(PROXY)
    expect(warn.mock.calls).toEqual([
      [expect.stringMatching(`^drizzle-ratelimit FORWARDED_IGNORED: .*${header}.*docs/http.md`)],
    ])
  })

  test('causes one warning for a Fetch request too, also with an address', () => {
    const request = new Request('http://localhost', { headers: { 'x-forwarded-for': '198.51.100.1' } })
    expect(clientKey(request, { address: PROXY })).toBe(PROXY)
    expect(warn).toHaveBeenCalledOnce()
  })

  test.each([
    ['trustedHops: 0 says that there is no proxy', from(PROXY, '198.51.100.1'), { trustedHops: 0 }],
    ['they are counted', from(PROXY, '198.51.100.1'), { trustedHops: 1 }],
    ['there is no such header', from(PROXY), {}],
    ['it is empty', from(PROXY, ''), {}],
  ])('causes no warning if %s', (_why, request, options) => {
    clientKey(request, options)
    expect(warn).not.toHaveBeenCalled()
  })
})
