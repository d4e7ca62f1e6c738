// Else loaded by the first call that needs it, which takes longer than tests with their own timers wait.
import '../../src/check/block.ts'
import '../../src/check/degrading.ts'
import '../../src/check/deny-cache.ts'
import '../../src/check/limit-all.ts'
import '../../src/check/reservation.ts'
import '../../src/check/upkeep.ts'
import '../../src/check/watch.ts'
import '../../src/runtime/sweep.ts'
