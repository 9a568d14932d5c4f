//go:build linux || darwin

package freedisk

import (
	"math"
	"math/bits"
	"syscall"
)

func freeBytes(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	over, free := bits.Mul64(uint64(s.Bavail), uint64(s.Bsize))
	if over > 0 || free > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(free), true
}
