import { answerEach } from '../child.ts'
import { type ProxyTarget, startDelayingProxy } from './delaying-proxy.ts'

// A process of its own: it naps, and its work is none of the contenders'.
answerEach<ProxyTarget, number>(startDelayingProxy)
