import { answerEach } from '../child.ts'
import { type ProxyTarget, startDelayingProxy } from './delaying-proxy.ts'

// The proxy is a process of its own, so its work does not count as a contender's.
answerEach<ProxyTarget, number>(startDelayingProxy)
